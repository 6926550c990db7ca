package splice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Errors of reading a ClientHello.
var (
	// ErrShort says that more bytes are needed.
	ErrShort = errors.New("incomplete")
	// ErrHello says that the bytes are not an acceptable ClientHello.
	ErrHello = errors.New("not an acceptable ClientHello")
)

// Numbers of TLS, as assigned by IANA.
const (
	recordHandshake     = 22
	handshakeHello      = 1
	extensionServerName = 0
	nameTypeHost        = 0
	recordMax           = 1 << 14
	// HelloMax bounds a ClientHello with its record headers. Key shares of
	// post-quantum algorithms take about two kilobytes.
	HelloMax = 32 << 10
	// recordsMost bounds the records of one: it is looked at again as each piece
	// of it arrives.
	recordsMost = 64
)

// ServerName gives the lowercase SNI of the ClientHello that data begins with,
// empty when it has none. It returns ErrShort when data is the beginning of one.
func ServerName(data []byte) (string, error) {
	message, err := helloMessage(data)
	if err != nil {
		return "", err
	}
	return serverName(message)
}

// helloMessage joins the handshake message from the records it is spread over.
func helloMessage(data []byte) ([]byte, error) {
	var message []byte
	used := 0
	for records := 0; ; records++ {
		if len(message) >= 4 {
			if message[0] != handshakeHello {
				return nil, fmt.Errorf("handshake type %d: %w", message[0], ErrHello)
			}
			need := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
			switch {
			case need > HelloMax:
				return nil, fmt.Errorf("%d bytes: %w", need, ErrHello)
			case len(message) > need:
				return nil, fmt.Errorf("bytes after the message: %w", ErrHello)
			case len(message) == need:
				return message[4:], nil
			}
		}
		if used > HelloMax || records >= recordsMost {
			return nil, fmt.Errorf("too many records: %w", ErrHello)
		}
		rest := data[used:]
		if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 || len(rest) > 2 && rest[2] > 4 {
			return nil, fmt.Errorf("record type: %w", ErrHello)
		}
		if len(rest) < 5 {
			return nil, ErrShort
		}
		length := int(binary.BigEndian.Uint16(rest[3:]))
		if length == 0 || length > recordMax {
			return nil, fmt.Errorf("record of %d bytes: %w", length, ErrHello)
		}
		if len(rest) < 5+length {
			return nil, ErrShort
		}
		message = append(message, rest[5:5+length]...)
		used += 5 + length
	}
}

// reader takes pieces off a message; a piece that is not there makes it bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) number(size int) int {
	n := 0
	for _, b := range r.take(size) {
		n = n<<8 | int(b)
	}
	return n
}

// vector takes a piece preceded by its length in size bytes.
func (r *reader) vector(size int) *reader {
	p := r.take(r.number(size))
	return &reader{b: p, bad: r.bad}
}

func serverName(message []byte) (string, error) {
	m := &reader{b: message}
	version := m.number(2)
	m.take(32) // random
	session, suites, methods := m.vector(1), m.vector(2), m.vector(1)
	if m.bad || version>>8 != 3 || len(session.b) > 32 || len(suites.b) == 0 || len(suites.b)%2 != 0 || len(methods.b) == 0 {
		return "", fmt.Errorf("fields: %w", ErrHello)
	}
	if len(m.b) == 0 {
		return "", nil // no extensions, so no name
	}
	extensions := m.vector(2)
	if m.bad || len(m.b) > 0 {
		return "", fmt.Errorf("extensions: %w", ErrHello)
	}
	name, seen := "", make(map[int]bool)
	for len(extensions.b) > 0 {
		kind := extensions.number(2)
		body := extensions.vector(2)
		if extensions.bad || seen[kind] {
			return "", fmt.Errorf("extension %d: %w", kind, ErrHello)
		}
		seen[kind] = true
		if kind != extensionServerName {
			continue
		}
		var err error
		if name, err = hostName(body); err != nil {
			return "", err
		}
	}
	return name, nil
}

// hostName reads a list of exactly one host name.
func hostName(body *reader) (string, error) {
	list := body.vector(2)
	kind := list.number(1)
	host := list.vector(2)
	if body.bad || list.bad || len(body.b) > 0 || len(list.b) > 0 || kind != nameTypeHost || len(host.b) == 0 || len(host.b) > 255 {
		return "", fmt.Errorf("server name: %w", ErrHello)
	}
	for _, c := range host.b {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("server name: %w", ErrHello)
		}
	}
	return strings.ToLower(string(host.b)), nil
}
