package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"meridian/run/node"
)

// What a history holds at most. Its file is cut to half of that when it has grown
// beyond, so that most lines are appended.
const (
	historyLines = 1000
	historyBytes = 256 << 10
	historyEntry = 16 << 10 // longer ones are pasted texts, which are not looked for line by line
)

// chatHistory is what a person has said, for the line editor. Its file is private,
// since people say what is private. It is shared by all chats of the person: each
// appends what is said in it.
type chatHistory struct {
	path    string // "" keeps nothing beyond this chat
	entries []string
	size    int // bytes of entries with their line ends
	err     error
}

// chatHistoryPath is the file of this user.
func chatHistoryPath() (string, error) {
	dir, err := node.DefaultStateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "chat_history"), nil
}

// openChatHistory reads what earlier chats have kept. A history without its file is
// used for this chat alone; the error says why.
func openChatHistory(path string) (*chatHistory, error) {
	h := &chatHistory{}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return h, fmt.Errorf("what is said is not kept for later chats: %w", err)
	}
	text, err := readChatHistory(path)
	if err != nil {
		return h, fmt.Errorf("what is said is not kept for later chats: %w", err)
	}
	for line := range strings.Lines(text) {
		h.put(strings.TrimSuffix(line, "\n"))
	}
	h.path = path
	if len(text) > historyBytes || strings.Count(text, "\n") > historyLines {
		h.cut()
	}
	return h, h.err
}

// readChatHistory reads the end of the file, one byte more than is kept, and makes it
// private.
func readChatHistory(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file; move it away", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return "", err
		}
	}
	begin := max(0, info.Size()-historyBytes-1)
	text, err := io.ReadAll(io.NewSectionReader(f, begin, historyBytes+1))
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// put remembers an entry, if it can be one: the editor shows it as it is, and a file
// may hold anything.
func (h *chatHistory) put(entry string) bool {
	driving := func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }
	if strings.TrimSpace(entry) == "" || len(entry) > historyEntry || strings.ContainsFunc(entry, driving) {
		return false
	}
	if n := len(h.entries); n > 0 && h.entries[n-1] == entry {
		return false
	}
	h.entries = append(h.entries, entry)
	h.size += len(entry) + 1
	return true
}

// Add implements term.History. As in shells, a line that begins with a space is not
// remembered.
func (h *chatHistory) Add(entry string) {
	if strings.HasPrefix(entry, " ") || !h.put(entry) {
		return
	}
	if len(h.entries) > historyLines || h.size > historyBytes {
		h.cut()
		return
	}
	if h.path == "" {
		return
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(entry + "\n")
		err = errors.Join(err, f.Close())
	}
	h.failed(err)
}

// cut keeps the newer entries, up to half of what there may be.
func (h *chatHistory) cut() {
	for len(h.entries) > historyLines/2 || h.size > historyBytes/2 {
		h.size -= len(h.entries[0]) + 1
		h.entries = h.entries[1:]
	}
	h.entries = slices.Clone(h.entries)
	if h.path == "" {
		return
	}
	h.failed(replace(behindLinks(h.path), 0o600, func(w io.Writer) error {
		for _, entry := range h.entries {
			if _, err := io.WriteString(w, entry+"\n"); err != nil {
				return err
			}
		}
		return nil
	}))
}

// failed gives the file up at the first error, and says so once.
func (h *chatHistory) failed(err error) {
	if err != nil {
		h.path, h.err = "", fmt.Errorf("what is said from now on is not kept for later chats: %w", err)
	}
}

// Len implements term.History.
func (h *chatHistory) Len() int { return len(h.entries) }

// At implements term.History: 0 is the newest.
func (h *chatHistory) At(i int) string { return h.entries[len(h.entries)-1-i] }
