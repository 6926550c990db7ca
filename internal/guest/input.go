package guest

// Bounds of a command's standard input.
const (
	MaxInput    = 32 << 10  // bytes in one request
	InputBuffer = 128 << 10 // bytes that the guest takes before the program reads them
)

// InputRequest is the payload of Input: bytes of a command's standard input, with
// the count of those before them, so that asking twice gives them once.
type InputRequest struct {
	ID     string
	Offset int64
	Close  bool // nothing follows Data
	Data   []byte
}

// InputState answers an InputRequest.
type InputState struct {
	Taken int64 `json:"taken"` // bytes taken so far; the next request begins there
	Open  bool  `json:"open"`  // more is taken
}

// The flags of an InputRequest on the wire.
const inputClose = 1

// AppendInput appends the request's payload: offset, flags, the id's length, the
// id, the data.
func AppendInput(dst []byte, r InputRequest) []byte {
	dst = AppendOffset(dst, r.Offset)
	flags := byte(0)
	if r.Close {
		flags = inputClose
	}
	dst = append(dst, flags, byte(len(r.ID)))
	dst = append(dst, r.ID...)
	return append(dst, r.Data...)
}

// ParseInput reads what AppendInput wrote; Data lies within p.
func ParseInput(p []byte) (InputRequest, bool) {
	offset, rest, ok := ParseOffset(p)
	if !ok || len(rest) < 2 || rest[0]&^inputClose != 0 || len(rest) < 2+int(rest[1]) {
		return InputRequest{}, false
	}
	n := int(rest[1])
	r := InputRequest{Offset: offset, Close: rest[0] == inputClose, ID: string(rest[2 : 2+n]), Data: rest[2+n:]}
	return r, ValidID(r.ID) && len(r.Data) <= MaxInput
}
