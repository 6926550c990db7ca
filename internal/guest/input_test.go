package guest

import (
	"bytes"
	"testing"
)

// FuzzInput reads what the wire may bring: what is taken is written the same way
// again, and nothing beyond the bounds is taken.
func FuzzInput(f *testing.F) {
	f.Add(AppendInput(nil, InputRequest{ID: "c-1", Offset: 7, Data: []byte("bytes")}))
	f.Add(AppendInput(nil, InputRequest{ID: "x", Close: true}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 'a'})
	f.Add([]byte{255, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'a'})
	f.Fuzz(func(t *testing.T, p []byte) {
		r, ok := ParseInput(p)
		if !ok {
			return
		}
		if r.Offset < 0 || !ValidID(r.ID) || len(r.Data) > MaxInput {
			t.Fatalf("taken: %+v", r)
		}
		if again := AppendInput(nil, r); !bytes.Equal(again, p) {
			t.Fatalf("%x became %x", p, again)
		}
	})
}

func TestInputThatIsNone(t *testing.T) {
	whole := AppendInput(nil, InputRequest{ID: "c", Data: []byte("d")})
	for name, p := range map[string][]byte{
		"empty": nil, "no id": AppendInput(nil, InputRequest{}), "cut": whole[:10],
		"unknown flag":    append(append([]byte{}, whole[:8]...), append([]byte{4}, whole[9:]...)...),
		"negative offset": AppendInput(nil, InputRequest{ID: "c", Offset: -1}),
		"too much":        AppendInput(nil, InputRequest{ID: "c", Data: make([]byte, MaxInput+1)}),
		"an id to refuse": AppendInput(nil, InputRequest{ID: "../c"}),
	} {
		if r, ok := ParseInput(p); ok {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
