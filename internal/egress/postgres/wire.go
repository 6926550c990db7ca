package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The bounds of what is read before a session is ready.
const (
	startupMax  = 10_000   // of a packet, as servers have it (MAX_STARTUP_PACKET_LENGTH)
	saslMax     = 1024     // of a message of SASL, as servers have it
	farMax      = 64 << 10 // of a message of the server's
	greetingMax = 1 << 20  // of all that a server says before it is ready
)

// ErrMalformed says that bytes are not what the protocol has in their place.
var ErrMalformed = errors.New("not a message of PostgreSQL")

// message is one of the protocol (PostgreSQL 17, "Message Formats").
type message struct {
	kind byte
	body []byte
}

// readMessage reads one whose body has at most that many bytes.
func readMessage(r io.Reader, most int) (message, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	n := int64(binary.BigEndian.Uint32(head[1:])) - 4
	if n < 0 || n > int64(most) {
		return message{}, fmt.Errorf("%w: message %q of %d bytes", ErrMalformed, head[0], n)
	}
	m := message{kind: head[0], body: make([]byte, n)}
	_, err := io.ReadFull(r, m.body)
	return m, err
}

// append adds the message to b.
func (m message) append(b []byte) []byte {
	b = append(b, m.kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.body)+4))
	return append(b, m.body...)
}

// The authentication requests that are told apart, the first number in a message
// 'R'.
const (
	authOK       = 0
	authSASL     = 10
	authContinue = 11
	authFinal    = 12
)

// authentication makes a message 'R'.
func authentication(request uint32, rest []byte) message {
	return message{'R', append(binary.BigEndian.AppendUint32(nil, request), rest...)}
}

// readAuthentication splits the body of a message 'R'.
func readAuthentication(body []byte) (request uint32, rest []byte, err error) {
	if len(body) < 4 {
		return 0, nil, ErrMalformed
	}
	return binary.BigEndian.Uint32(body), body[4:], nil
}

// texts splits what is all texts, each ended by a NUL, with an empty one at the
// end.
func texts(b []byte) ([]string, error) {
	var out []string
	for {
		text, rest, ok := strings.Cut(string(b), "\x00")
		if !ok {
			return nil, ErrMalformed
		}
		if text == "" {
			if rest != "" {
				return nil, ErrMalformed
			}
			return out, nil
		}
		out, b = append(out, text), b[len(text)+1:]
	}
}
