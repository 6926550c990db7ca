package postgres

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// The codes of packets ("Message Formats": CancelRequest, SSLRequest,
// GSSENCRequest, StartupMessage).
const (
	codeCancel = 1234<<16 | 5678
	codeTLS    = 1234<<16 | 5679
	codeGSS    = 1234<<16 | 5680
	version3   = 3 << 16
)

// Key names a session to who wants to cancel what runs in it.
type Key struct{ Process, Secret uint32 }

// Setting is one that a session begins with.
type Setting struct{ Name, Value string }

// Startup is how a program asks for a session.
type Startup struct {
	User     string
	Database string // the user's name where the program says none
	Settings []Setting
	// Minor is the minor version of protocol 3 that was asked for, and Unknown the
	// extensions of the protocol. Neither is spoken here.
	Minor   uint16
	Unknown []string
}

// packet is what a connection begins with. Exactly one field is set.
type packet struct {
	tls, gss bool
	cancel   *Key
	startup  *Startup
}

// readPacket reads one whose first bytes are given already.
func readPacket(r io.Reader, first []byte) (packet, error) {
	var head [4]byte
	n := copy(head[:], first)
	if _, err := io.ReadFull(r, head[n:]); err != nil {
		return packet{}, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < 8 || length > startupMax {
		return packet{}, fmt.Errorf("%w: a packet of %d bytes", ErrMalformed, length)
	}
	body := make([]byte, length-4)
	if _, err := io.ReadFull(r, body); err != nil {
		return packet{}, err
	}
	return parsePacket(body)
}

// parsePacket reads a packet that comes after its length.
func parsePacket(body []byte) (packet, error) {
	if len(body) < 4 {
		return packet{}, ErrMalformed
	}
	code, rest := binary.BigEndian.Uint32(body), body[4:]
	switch {
	case code == codeTLS && len(rest) == 0:
		return packet{tls: true}, nil
	case code == codeGSS && len(rest) == 0:
		return packet{gss: true}, nil
	case code == codeCancel && len(rest) == 8:
		return packet{cancel: &Key{binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])}}, nil
	case code>>16 == 3:
		s, err := parseStartup(rest)
		s.Minor = uint16(code) //nolint:gosec // the lower half is what is meant
		return packet{startup: &s}, err
	case code>>16 == 2:
		return packet{}, &Refusal{State: "0A000", Reason: task.PolicyProtocol, Text: "protocol 2 is not spoken; use a client of PostgreSQL 7.4 or later"}
	}
	return packet{}, fmt.Errorf("%w: a packet with the code %d", ErrMalformed, code)
}

func parseStartup(b []byte) (Startup, error) {
	var s Startup
	// The pairs end where a name is empty; a value may be.
	rest := string(b)
	for {
		name, after, ok := strings.Cut(rest, "\x00")
		if !ok {
			return s, ErrMalformed
		}
		if name == "" {
			if after != "" {
				return s, ErrMalformed
			}
			break
		}
		var value string
		if value, rest, ok = strings.Cut(after, "\x00"); !ok {
			return s, ErrMalformed
		}
		if err := s.set(name, value); err != nil {
			return s, err
		}
	}
	if s.User == "" {
		return s, &Refusal{State: "28000", Reason: task.PolicyProtocol, Text: "no user is named; set PGUSER, or leave it as it is set"}
	}
	if s.Database == "" {
		s.Database = s.User
	}
	return s, nil
}

// set takes one pair of a start-up.
func (s *Startup) set(name, value string) error {
	twice := &Refusal{State: "08P01", Reason: task.PolicyProtocol, Text: fmt.Sprintf("the start-up says %s twice", quoted(name))}
	switch {
	case name == "user":
		if s.User != "" {
			return twice
		}
		s.User = value
	case name == "database":
		if s.Database != "" {
			return twice
		}
		s.Database = value
	case name == "replication":
		return &Refusal{State: "28000", Reason: task.PolicyProtocol, Text: "replication is not lent; connect without it"}
	case strings.HasPrefix(name, "_pq_."):
		s.Unknown = append(s.Unknown, name)
	case slices.ContainsFunc(s.Settings, func(have Setting) bool { return strings.EqualFold(have.Name, name) }):
		return twice
	case name == "options" && !plainOptions(value):
		return &Refusal{State: "28000", Reason: task.PolicyProtocol, Text: "options may hold settings only, as -c name=value without escapes; others would say which server or session is meant"}
	case !settingName(name):
		return &Refusal{State: "08P01", Reason: task.PolicyProtocol, Text: fmt.Sprintf("%s is not the name of a setting", quoted(name))}
	default:
		s.Settings = append(s.Settings, Setting{name, value})
	}
	return nil
}

// settingName says whether a server could have a setting of that name.
func settingName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c != '.' && c != '$' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= 127
}

// plainOptions says whether the command line that a start-up has for its session
// sets settings and does nothing else. Some services read the name of another
// server there. What escapes a space is not taken.
func plainOptions(line string) bool {
	if strings.Contains(line, `\`) {
		return false
	}
	words := strings.Fields(line)
	for i := 0; i < len(words); i++ {
		word, ok := strings.CutPrefix(words[i], "--")
		if !ok {
			if word, ok = strings.CutPrefix(words[i], "-c"); !ok {
				return false
			}
			if word == "" {
				if i++; i == len(words) {
					return false
				}
				word = words[i]
			}
		}
		name, _, ok := strings.Cut(word, "=")
		if !ok || !settingName(strings.ReplaceAll(name, "-", "_")) {
			return false
		}
	}
	return true
}

// append adds the packet that asks for the session to b, in protocol 3.0.
func (s Startup) append(b []byte) []byte {
	body := binary.BigEndian.AppendUint32(nil, version3)
	for _, p := range append([]Setting{{"user", s.User}, {"database", s.Database}}, s.Settings...) {
		body = append(append(append(append(body, p.Name...), 0), p.Value...), 0)
	}
	body = append(body, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	return append(b, body...)
}

// appendCode adds a packet that is a code and what follows it.
func appendCode(b []byte, code uint32, rest ...uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(8+4*len(rest)))
	b = binary.BigEndian.AppendUint32(b, code)
	for _, n := range rest {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
