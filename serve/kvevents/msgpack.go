package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrEncoding means that a batch is not msgpack, or not of the shape that vLLM
// publishes.
var ErrEncoding = errors.New("kvevents: a batch cannot be read")

// msgpack reads values one after the other. What it returns points into data.
type msgpack struct {
	data []byte
	at   int
}

// maxDepth bounds how deep values that are passed over may nest.
const maxDepth = 32

func (m *msgpack) left() int { return len(m.data) - m.at }

func (m *msgpack) take(n int) ([]byte, error) {
	if n < 0 || n > m.left() {
		return nil, fmt.Errorf("%w: it ends in the middle of a value", ErrEncoding)
	}
	taken := m.data[m.at : m.at+n]
	m.at += n
	return taken, nil
}

func (m *msgpack) code() (byte, error) {
	b, err := m.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// number reads a big-endian number of so many bytes.
func (m *msgpack) number(bytes int) (uint64, error) {
	b, err := m.take(bytes)
	if err != nil {
		return 0, err
	}
	var whole [8]byte
	copy(whole[8-bytes:], b)
	return binary.BigEndian.Uint64(whole[:]), nil
}

func wrong(want string, code byte) error {
	return fmt.Errorf("%w: %s was expected, and there is %#x", ErrEncoding, want, code)
}

const codeNil = 0xc0

// isNil passes over a nil, if there is one.
func (m *msgpack) isNil() bool {
	if m.left() > 0 && m.data[m.at] == codeNil {
		m.at++
		return true
	}
	return false
}

// integer reads one of any width; negative ones as two's complement.
func (m *msgpack) integer() (uint64, error) {
	code, err := m.code()
	switch {
	case err != nil:
		return 0, err
	case code < 0x80:
		return uint64(code), nil
	case code >= 0xe0:
		return uint64(int64(int8(code))), nil
	case code >= 0xcc && code <= 0xcf:
		return m.number(1 << (code - 0xcc))
	case code >= 0xd0 && code <= 0xd3:
		width := 1 << (code - 0xd0)
		n, err := m.number(width)
		shift := 64 - 8*width
		return uint64(int64(n<<shift) >> shift), err
	}
	return 0, wrong("an integer", code)
}

// list reads how many elements an array has. Each takes at least a byte, so a
// lie about them is seen here.
func (m *msgpack) list() (int, error) {
	return m.many("a list", 0x90, 0xdc, 1)
}

// pairs reads how many members a map has.
func (m *msgpack) pairs() (int, error) {
	return m.many("a map", 0x80, 0xde, 2)
}

func (m *msgpack) many(what string, fixed, wide byte, least int) (int, error) {
	code, err := m.code()
	if err != nil {
		return 0, err
	}
	var n uint64
	switch {
	case code&0xf0 == fixed:
		n = uint64(code & 0x0f)
	case code == wide:
		n, err = m.number(2)
	case code == wide+1:
		n, err = m.number(4)
	default:
		return 0, wrong(what, code)
	}
	if err == nil && n > uint64(m.left()/least) {
		err = fmt.Errorf("%w: %s of %d, with %d bytes left", ErrEncoding, what, n, m.left())
	}
	return int(n), err
}

// text reads a string or bytes.
func (m *msgpack) text() ([]byte, error) {
	code, err := m.code()
	if err != nil {
		return nil, err
	}
	var n uint64
	switch {
	case code&0xe0 == 0xa0:
		n = uint64(code & 0x1f)
	case code >= 0xd9 && code <= 0xdb:
		n, err = m.number(1 << (code - 0xd9))
	case code >= 0xc4 && code <= 0xc6:
		n, err = m.number(1 << (code - 0xc4))
	default:
		return nil, wrong("a text", code)
	}
	if err != nil {
		return nil, err
	}
	return m.take(int(n))
}

func isText(code byte) bool {
	return code&0xe0 == 0xa0 || code >= 0xd9 && code <= 0xdb
}

// float reads a number of either kind.
func (m *msgpack) float() (float64, error) {
	if m.left() == 0 {
		return 0, fmt.Errorf("%w: it ends before a number", ErrEncoding)
	}
	switch m.data[m.at] {
	case 0xca:
		m.at++
		n, err := m.number(4)
		return float64(math.Float32frombits(uint32(n))), err
	case 0xcb:
		m.at++
		n, err := m.number(8)
		return math.Float64frombits(n), err
	}
	n, err := m.integer()
	return float64(int64(n)), err
}

// skip passes over a value of any kind, and returns its bytes.
func (m *msgpack) skip() ([]byte, error) {
	start := m.at
	err := m.pass(maxDepth)
	return m.data[start:m.at], err
}

func (m *msgpack) pass(depth int) error {
	if depth == 0 {
		return fmt.Errorf("%w: values nest deeper than %d", ErrEncoding, maxDepth)
	}
	if m.left() == 0 {
		return fmt.Errorf("%w: it ends before a value", ErrEncoding)
	}
	code := m.data[m.at]
	switch {
	case code&0xf0 == 0x90 || code == 0xdc || code == 0xdd:
		n, err := m.list()
		return m.passAll(n, depth, err)
	case code&0xf0 == 0x80 || code == 0xde || code == 0xdf:
		n, err := m.pairs()
		return m.passAll(2*n, depth, err)
	case code == 0xc1:
		return wrong("a value", code)
	case isText(code) || code >= 0xc4 && code <= 0xc6:
		_, err := m.text()
		return err
	}
	m.at++
	n, err := m.bodyBytes(code)
	if err == nil {
		_, err = m.take(n)
	}
	return err
}

func (m *msgpack) passAll(n, depth int, err error) error {
	for i := 0; i < n && err == nil; i++ {
		err = m.pass(depth - 1)
	}
	return err
}

// bodyBytes is how many bytes follow the code of a value that holds no others.
func (m *msgpack) bodyBytes(code byte) (int, error) {
	switch {
	case code >= 0xcc && code <= 0xcf: // unsigned
		return 1 << (code - 0xcc), nil
	case code >= 0xd0 && code <= 0xd3: // signed
		return 1 << (code - 0xd0), nil
	case code == 0xca || code == 0xcb: // float
		return 4 << (code - 0xca), nil
	case code >= 0xd4 && code <= 0xd8: // extension of a fixed size, and its type
		return 1 + 1<<(code-0xd4), nil
	case code >= 0xc7 && code <= 0xc9: // extension
		n, err := m.number(1 << (code - 0xc7))
		return 1 + int(n), err
	}
	return 0, nil // nil, true, false, and integers that are their own code
}
