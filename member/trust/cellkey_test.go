package trust

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The test binary is also a process that opens a cell key when it is told so.
const creatorVariable = "TRUST_TEST_CELL_KEY_IN"

func TestMain(m *testing.M) {
	dir := os.Getenv(creatorVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	var gate [1]byte
	_, _ = os.Stdin.Read(gate[:]) // all wait for one end of file
	key, err := OpenCellKey(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("%x\n", key.Derive("test"))
}

func openedKey(t testing.TB, dir string) CellKey {
	t.Helper()
	key, err := OpenCellKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestCellKeyIsMadeOnce(t *testing.T) {
	state := filepath.Join(t.TempDir(), "not", "there", "yet")
	first := openedKey(t, state)
	if again := openedKey(t, state); *again.secret != *first.secret {
		t.Error("the second start has another key")
	}
	if other := openedKey(t, t.TempDir()); *other.secret == *first.secret {
		t.Error("two cells have one key")
	}
	info, err := os.Stat(filepath.Join(state, CellKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 2*keyBytes+1 {
		t.Errorf("%v %v", info, err)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v %v", info, err)
	}
	onlyKey(t, state)
}

// onlyKey demands that nothing was left behind.
func onlyKey(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != CellKeyFile {
		t.Errorf("%v %v", entries, err)
	}
}

func TestCellKeyRace(t *testing.T) {
	const creators = 16
	for range 20 {
		dir := t.TempDir()
		keys := make([]CellKey, creators)
		gate := make(chan struct{})
		var wait sync.WaitGroup
		for i := range keys {
			wait.Go(func() {
				<-gate
				keys[i] = openedKey(t, dir)
			})
		}
		close(gate)
		wait.Wait()
		for _, key := range keys {
			if *key.secret != *keys[0].secret {
				t.Fatal("two creators have different keys")
			}
		}
		onlyKey(t, dir)
	}
}

func TestCellKeyRaceOfProcesses(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gate, opener, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outputs := make([]bytes.Buffer, 8)
	var running []*exec.Cmd
	for i := range outputs {
		command := exec.CommandContext(t.Context(), self)
		command.Env = append(os.Environ(), creatorVariable+"="+dir)
		command.Stdin, command.Stdout = gate, &outputs[i]
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, command)
	}
	gate.Close()
	opener.Close()
	for i, command := range running {
		if err := command.Wait(); err != nil || outputs[i].String() != outputs[0].String() {
			t.Errorf("%v: %s, the first has %s", err, &outputs[i], &outputs[0])
		}
	}
	if want := openedKey(t, dir).Derive("test"); outputs[0].String() != hex.EncodeToString(want[:])+"\n" {
		t.Errorf("the file has another key than the processes: %s", &outputs[0])
	}
	onlyKey(t, dir)
}

func TestCellKeyRefusals(t *testing.T) {
	good := newCellKey().text()
	for name, c := range map[string]struct {
		data []byte
		mode fs.FileMode
		want error
		says string
	}{
		"group reads":   {good, 0o640, ErrExposed, "has mode 0640 where 0600 is due"},
		"others read":   {good, 0o604, ErrExposed, "remove it and start them again"},
		"others write":  {good, 0o602, ErrExposed, "has mode 0602"},
		"empty":         {nil, 0o600, ErrFile, "it has 0 bytes where 64 hex digits should be"},
		"short":         {good[:63], 0o600, ErrFile, "63 bytes"},
		"long":          {append([]byte("0"), good...), 0o600, ErrFile, "65 bytes"},
		"two newlines":  {append(bytes.Clone(good), '\n'), 0o600, ErrFile, "65 bytes"},
		"no hex":        {append([]byte("x"), good[1:]...), 0o600, ErrFile, "hex digits"},
		"zeros":         {bytes.Repeat([]byte("0"), 64), 0o600, ErrFile, "guess"},
		"huge":          {make([]byte, maxFileBytes+1), 0o600, ErrFile, "more than"},
		"not readable":  {good, 0, fs.ErrPermission, "permission denied"},
		"without a \\n": {good[:64], 0o600, nil, ""},
		"read only":     {good, 0o400, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == fs.ErrPermission && os.Geteuid() == 0 {
				c.want = nil // nothing keeps root from reading
			}
			path := filepath.Join(t.TempDir(), CellKeyFile)
			write(t, path, c.data)
			chmod(t, path, c.mode)
			_, err := OpenCellKey(filepath.Dir(path))
			judged(t, "OpenCellKey", err, c.want, c.says)
			chmod(t, path, 0o600)
			if !bytes.Equal(read(t, path), c.data) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestCellKeyIsNoDirectoryAndNoPipe(t *testing.T) {
	dir := t.TempDir()
	mkfifo(t, filepath.Join(dir, CellKeyFile))
	_, err := OpenCellKey(dir)
	judged(t, "OpenCellKey", err, ErrFile, "not a regular file")
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, CellKeyFile), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = OpenCellKey(dir)
	judged(t, "OpenCellKey", err, ErrFile, "not a regular file")
}

// ownedBy is a file of another user.
type ownedBy struct {
	fs.FileInfo
	user int
}

func (o ownedBy) Sys() any { return &syscall.Stat_t{Uid: uint32(o.user)} }

func TestCellKeyBelongsToItsUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), CellKeyFile)
	write(t, path, nil)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	judged(t, "checkMode", checkMode(path, info, ownerOnly), nil, "")
	judged(t, "checkMode", checkMode(path, ownedBy{info, 0}, ownerOnly), nil, "")
	judged(t, "checkMode", checkMode(path, ownedBy{info, os.Geteuid() + 1}, ownerOnly), ErrExposed, "belongs to user")
}

func TestCellKeyInAnOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	chmod(t, dir, 0o777)
	_, err := OpenCellKey(dir)
	judged(t, "OpenCellKey", err, ErrExposed, "has mode 0777")
}

func TestCellKeyNeverPrintsItself(t *testing.T) {
	key := newCellKey()
	held := struct {
		Key    CellKey
		hidden CellKey
	}{key, key}
	secret := hex.EncodeToString(key.secret[:4])
	bytes := strings.Trim(fmt.Sprint(key.secret[:4]), "[]")
	for _, format := range []string{"%v", "%+v", "%#v"} {
		for _, value := range []any{key, &key, held, &held} {
			if text := fmt.Sprintf(format, value); strings.Contains(text, secret) || strings.Contains(text, bytes) {
				t.Errorf("%s of %T shows the key", format, value)
			}
		}
	}
}

func TestDerivedKeysDiffer(t *testing.T) {
	key := newCellKey()
	seen := map[[keyBytes]byte]Purpose{}
	for _, p := range []Purpose{ForTickets, ForGatewayLegs, "", "link proof 1"} {
		derived := key.Derive(p)
		if was, taken := seen[derived]; taken {
			t.Errorf("%q and %q have one key", was, p)
		}
		seen[derived] = p
		if again := key.Derive(p); again != derived {
			t.Errorf("%q has two keys", p)
		}
		if other := newCellKey().Derive(p); other == derived {
			t.Errorf("%q: two cells have one key", p)
		}
	}
	if _, shared := seen[key.derive("link proof 1")]; shared {
		t.Error("a purpose has the key of proofs")
	}
}

func TestZeroCellKeyIsNoKey(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the zero key proves something")
		}
	}()
	Proof(CellKey{}, Dialer, Transcript{})
}

func FuzzCellKey(f *testing.F) {
	f.Add(newCellKey().text())
	f.Add([]byte(strings.Repeat("0", 64)))
	f.Add([]byte(strings.Repeat("Ab", 32) + "\n\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := parseCellKey(data)
		if err != nil {
			if !errors.Is(err, ErrFile) || key.secret != nil {
				t.Errorf("%v with %v", err, key.secret)
			}
			return
		}
		if !strings.EqualFold(strings.TrimSpace(string(data)), strings.TrimSpace(string(key.text()))) {
			t.Errorf("%q was read as another key", data)
		}
	})
}
