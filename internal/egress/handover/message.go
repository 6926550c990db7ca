package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Version of the conversation.
const Version = 1

// The kinds of request.
const (
	KindHello  = "hello"  // Hello → Welcome
	KindAttach = "attach" // Attach and the device → Attached
	KindGrant  = "grant"  // Grant → nothing
	KindDetach = "detach" // Sandbox → nothing
	KindDevice = "device" // Sandbox → nothing and the device
	KindName   = "name"   // Name → nothing; asked by the gateway
	KindBroken = "broken" // Sandbox → nothing; asked by the gateway, whose end of the device failed
)

// Hello begins the conversation. Sandboxes is all that shall be attached; the
// gateway drops the rest.
type Hello struct {
	Version   int      `json:"version"`
	Sandboxes []string `json:"sandboxes"`
}

// Welcome answers Hello. Attached is what the gateway has and keeps.
type Welcome struct {
	Epoch    string   `json:"epoch"`
	Attached []string `json:"attached"`
}

// Attach hands a sandbox over. Names, Sealed and Grant are what the worker
// stored; for a new sandbox they are empty.
type Attach struct {
	Sandbox string        `json:"sandbox"`
	Names   []names.Entry `json:"names,omitempty"`
	Sealed  []byte        `json:"sealed,omitempty"`
	Grant   task.Grant    `json:"grant"`

	MaxNames       int64 `json:"maxNames,omitempty"`       // 0: the gateway's own limit
	MaxConnections int64 `json:"maxConnections,omitempty"` // 0: likewise
}

// Attached answers Attach. Sealed is to be stored and handed back.
type Attached struct {
	PEM    []byte `json:"pem"`
	Sealed []byte `json:"sealed"`
}

// Grant sets what a sandbox may reach.
type Grant struct {
	Grant task.Grant `json:"grant"`
}

// Sandbox names one.
type Sandbox struct {
	Sandbox string `json:"sandbox"`
}

// Name reports that an address was allotted. It may be told inside the sandbox
// only after the reply.
type Name struct {
	Sandbox string      `json:"sandbox"`
	Entry   names.Entry `json:"entry"`
}

// Nothing is an empty body.
type Nothing struct{}

// message is what a frame holds.
type message struct {
	ID      uint64          `json:"id"`
	Reply   bool            `json:"reply,omitempty"`
	Kind    string          `json:"kind,omitempty"` // of a request
	Body    json.RawMessage `json:"body,omitempty"`
	Failure *failure        `json:"failure,omitempty"` // of a reply
}

type failure struct {
	Reason task.Reason `json:"reason"`
	Text   string      `json:"text"`
}

// ErrMessage says that the other side sent what it must not.
var ErrMessage = errors.New("bad message")

// Decode reads exactly one JSON value into v and refuses unknown fields.
func Decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more than one value", ErrMessage)
	}
	return nil
}

func parse(data []byte) (message, error) {
	var m message
	if err := Decode(data, &m); err != nil {
		return message{}, err
	}
	if m.ID == 0 || m.Reply != (m.Kind == "") || m.Failure != nil && (!m.Reply || m.Failure.Reason == "") {
		return message{}, fmt.Errorf("%w: neither a request nor a reply", ErrMessage)
	}
	return m, nil
}

var idPattern = regexp.MustCompile(`^sb-[a-z2-7]{16}$`)

// ValidID says whether s is a sandbox id; it is used as a file name.
func ValidID(s string) bool { return idPattern.MatchString(s) }
