package guest

import (
	"encoding/binary"
	"encoding/json"
	"time"
)

// Type says what a frame is.
type Type byte

// The frames from the worker to the guest.
const (
	Hello        Type = 1 + iota // begins an epoch; accepted in any
	Resume                       // Stream: command; payload: offset that is on disk. The guest sends from there
	Ack                          // Stream: command; payload: offset that is on disk
	ExitAck                      // Stream: command; payload: 1 when the end of its pipes is recorded too
	Configure                    // Stream: request; payload: Config
	Start                        // Stream: request; payload: Command
	Signal                       // Stream: request; payload: SignalRequest
	Ping                         // Stream: request
	Shutdown                     // Stream: request
	Put                          // Stream: transfer; payload: PutRequest
	Get                          // Stream: transfer; payload: GetRequest
	TransferEnd                  // Stream: transfer; no more bytes follow (put)
	TransferStop                 // Stream: transfer; the worker gives up
)

// The frames from the worker to the guest about a command that runs.
const (
	Input   Type = 32 + iota // Stream: request; payload: InputRequest in bytes of its own
	Resize                   // Stream: request; payload: ResizeRequest
	Inspect                  // Stream: request; payload: InspectRequest
)

// The frames from the guest to the worker.
const (
	Welcome Type = 64 + iota // Stream: 0; payload: Greeting; answers a hello
	Resync                   // bytes were lost: the worker begins a new epoch
	Output                   // Stream: command; payload: offset, descriptor, bytes
	Exit                     // Stream: command; payload: Ending; sent after all output up to its offset
	Reply                    // Stream: request or transfer; payload: Answer; the last frame of either
)

// The frames of both.
const (
	Data   Type = 128 + iota // Stream: transfer; payload: bytes
	Credit                   // Stream: transfer; payload: count of bytes consumed so far
)

// Bounds of the channel.
const (
	MaxMessage    = 1 << 20   // bytes of a message in several frames
	MaxChunk      = 32 << 10  // bytes of output in a frame
	MaxData       = 32 << 10  // bytes of a transfer in a frame
	Window        = 512 << 10 // bytes of a transfer that are not consumed
	CommandBuffer = 1 << 20   // bytes of a command's output the guest keeps
	TotalBuffer   = 4 << 20   // bytes of all commands' output the guest keeps
	MaxActive     = 1024      // commands that run or whose end the worker has not recorded
)

// Greeting is the payload of Welcome.
type Greeting struct {
	Boot     string          `json:"boot"` // of the guest; another one is another guest
	Commands []ActiveCommand `json:"commands,omitempty"`
}

// ActiveCommand is a command that runs or has something the worker has not
// recorded.
type ActiveCommand struct {
	Number uint64 `json:"n"`     // its stream
	Acked  int64  `json:"acked"` // offset of the first byte the guest still has
	Status Status `json:"status"`
}

// SignalRequest is the payload of Signal.
type SignalRequest struct {
	ID     string `json:"id"`
	Signal int    `json:"signal"`
	Group  bool   `json:"group,omitempty"` // only the process group of its main process
	PID    int    `json:"pid,omitempty"`   // only this process of its tree
}

// ResizeRequest is the payload of Resize.
type ResizeRequest struct {
	ID   string `json:"id"`
	Size Size   `json:"size"`
}

// InspectRequest is the payload of Inspect.
type InspectRequest struct {
	ID string `json:"id,omitempty"` // empty: every command that has a process
}

// PutRequest is the payload of Put.
type PutRequest struct {
	Dir string `json:"dir"`
}

// GetRequest is the payload of Get.
type GetRequest struct {
	Path    string   `json:"path"`
	Exclude []string `json:"exclude,omitempty"`
}

// Answer is the payload of Reply. The fields beside Error depend on the request.
type Answer struct {
	Error  *Error   `json:"error,omitempty"`
	Number uint64   `json:"n,omitempty"`      // of Start: the command's stream
	Status *Status  `json:"status,omitempty"` // of Start
	Notes  []string `json:"notes,omitempty"`  // of Get: what was left out

	Input       *InputState  `json:"input,omitempty"`       // of Input
	Inspections []Inspection `json:"inspections,omitempty"` // of Inspect

	Protected *Protected `json:"protected,omitempty"` // of Protect

	File *FileResult `json:"file,omitempty"` // of FileDo and FileWrite
}

// Ending is the payload of Exit.
type Ending struct {
	Status Status `json:"status"`
	Offset int64  `json:"offset"` // the command's output up to its end
	Closed bool   `json:"closed"` // nothing more can follow: no process has its pipes
}

// Marshal encodes a control payload. The types above always can be.
func Marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("guest: " + err.Error())
	}
	return text
}

// AppendMessage appends a payload of any length up to MaxMessage as frames that
// follow one another.
func AppendMessage(dst []byte, f Frame) []byte {
	rest := f.Payload
	for len(rest) > MaxPayload {
		f.Flags, f.Payload, rest = More, rest[:MaxPayload], rest[MaxPayload:]
		dst = AppendFrame(dst, f)
	}
	f.Flags, f.Payload = 0, rest
	return AppendFrame(dst, f)
}

// Assembler joins the frames of a message. A frame of another message, or one too
// many, loses what was begun.
type Assembler struct {
	kind   Type
	epoch  uint64
	stream uint64
	part   []byte
}

// Add takes the next frame and returns the whole message, once it is whole.
func (a *Assembler) Add(f Frame) (Frame, bool) {
	same := a.part != nil && f.Type == a.kind && f.Epoch == a.epoch && f.Stream == a.stream
	if !same {
		a.part = nil
	}
	if len(a.part)+len(f.Payload) > MaxMessage {
		a.part = nil
		return Frame{}, false
	}
	if f.Flags&More != 0 {
		a.kind, a.epoch, a.stream = f.Type, f.Epoch, f.Stream
		a.part = append(a.part, f.Payload...)
		return Frame{}, false
	}
	if same {
		f.Payload, a.part = append(a.part, f.Payload...), nil
	}
	return f, true
}

// AppendOffset appends an offset.
func AppendOffset(dst []byte, offset int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(offset))
}

// ParseOffset reads an offset and refuses a negative one.
func ParseOffset(p []byte) (offset int64, rest []byte, ok bool) {
	if len(p) < 8 {
		return 0, nil, false
	}
	offset = int64(binary.BigEndian.Uint64(p))
	return offset, p[8:], offset >= 0
}

// AppendOutput appends the payload of an Output frame.
func AppendOutput(dst []byte, c Chunk) []byte {
	dst = AppendOffset(dst, c.Offset)
	dst = append(dst, byte(c.Fd))
	return append(dst, c.Data...)
}

// ParseOutput reads the payload of an Output frame.
func ParseOutput(p []byte) (Chunk, bool) {
	offset, rest, ok := ParseOffset(p)
	if !ok || len(rest) < 2 || len(rest) > MaxChunk+1 || rest[0] != 1 && rest[0] != 2 {
		return Chunk{}, false
	}
	return Chunk{Fd: int(rest[0]), Offset: offset, Data: rest[1:]}, true
}

// PlausibleTime says whether t can be written down and compared: a guest may say
// anything.
func PlausibleTime(t time.Time) bool { return t.Year() >= 2000 && t.Year() < 9999 }
