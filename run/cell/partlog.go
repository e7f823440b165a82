package cell

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	logsDir = "logs"
	// maxLogBytes is how long a log grows before it is put aside; one that was
	// put aside is kept.
	maxLogBytes = 8 << 20
	// toldLines is how much of a log is kept in mind, for errors.
	toldLines = 12
	// logTime stands before each line that does not tell its own, so that logs of
	// several parts can be merged whatever the parts write.
	logTime = "2006-01-02T15:04:05.000Z07:00"
)

func logPath(dir, name string) string { return filepath.Join(dir, logsDir, name+".log") }

// partLog is the log of one part: of events in words, or of one object of JSON a line
// and nothing else.
type partLog struct {
	path   string
	isJSON bool

	mu    sync.Mutex // protects what follows
	file  *os.File   // nil once it could not be written
	bytes int64
	told  []string
}

// openPartLog puts an older log aside and begins a new one.
func openPartLog(dir, name string, isJSON bool) (*partLog, error) {
	j := &partLog{path: logPath(dir, name), isJSON: isJSON}
	if err := j.rotate(); err != nil {
		return nil, fmt.Errorf("cell: log of %s: %w", name, err)
	}
	return j, nil
}

func (j *partLog) rotate() error {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	if err := os.Rename(j.path, j.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	j.bytes = 0
	return err
}

// begin forgets what was told, because another process speaks now.
func (j *partLog) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told = nil
}

// write adds a line that the part has said. One that tells its time stays as it is.
func (j *partLog) write(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.told) == toldLines {
		j.told = append(j.told[:0], j.told[1:]...)
	}
	j.told = append(j.told, line)
	isObject := strings.HasPrefix(line, "{")
	switch now := time.Now(); {
	case isObject == j.isJSON && !ownTime(line).IsZero():
		j.appendLocked(line)
	case j.isJSON:
		j.appendLocked(eventLine(now, true, slog.LevelInfo, "said", "text", line))
	default:
		j.appendLocked(now.Format(logTime) + " " + line)
	}
}

// remark adds an event in the part's life.
func (j *partLog) remark(name string, attributes ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appendLocked(eventLine(time.Now(), j.isJSON, slog.LevelInfo, name, attributes...))
}

// appendLocked keeps a part running whose log cannot be written, as on a full
// disk; what it said last is still in told.
func (j *partLog) appendLocked(line string) {
	if j.bytes > maxLogBytes {
		_ = j.rotate()
	}
	if j.file == nil {
		return // it is closed, or there could be no new one
	}
	n, _ := j.file.WriteString(line + "\n")
	j.bytes += int64(n)
}

// last is the end of what the process has said.
func (j *partLog) last() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.told...)
}

func (j *partLog) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	j.bytes = 0
}
