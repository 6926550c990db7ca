package inside

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/attack"
)

func aTry() *try {
	return &try{id: "credential.x", plan: attack.Plan{Nonce: "abcdefghijklmnopqrst", Far: attack.Far{Begins: "cfdrealabcdefghijklmnopqrst", Bound: 4443}}}
}

// Silence is never a refusal, and what the far side says is none either.
func TestRefused(t *testing.T) {
	far := "HTTP/1.1 200 OK\r\n\r\n" + aTry().marker()
	for answer, want := range map[string]string{
		"": attack.Untried, "HTTP/1.1 200 OK\r\n\r\nsomething": attack.Untried, far: attack.Fell, "HTTP/1.1 403 Forbidden\r\n\r\n" + `{"code":"policy.denied"}` + far: attack.Fell,
		"HTTP/1.1 403 Forbidden\r\n\r\n" + `{"code":"policy.credential"}`: attack.Held, "HTTP/1.1 400 Bad Request\r\n\r\n": attack.Held, "HTTP/1.1 502 Bad Gateway\r\n\r\n" + `{"code":"egress.unreachable"}`: attack.Fell,
		"HTTP/1.1 503 Service Unavailable\r\n\r\n" + `{"code":"infra.control_plane_away"}`: attack.Untried,
	} {
		if v := aTry().refused("x", answer, errors.New("y")); v.outcome != want {
			t.Errorf("%q: %+v, want %s", answer, v, want)
		}
	}
}

// A value is seen in each spelling, whatever stands before and after it; and an
// answer that did not come shows nothing.
func TestUnseen(t *testing.T) {
	value := aTry().plan.Far.Begins + "THEREST"
	for _, before := range []string{"", "x", "xy", "robot:", "x-access-token:"} {
		for name, text := range map[string]string{
			"plain": before + value, "base64": base64.StdEncoding.EncodeToString([]byte(before + value)), "raw": base64.RawURLEncoding.EncodeToString([]byte(before + value)), "hex": hex.EncodeToString([]byte(before + value)),
			"HEX": strings.ToUpper(hex.EncodeToString([]byte(before + value))),
		} {
			if v := aTry().unseen("x", aTry().marker()+"\n"+text, nil); v.outcome != attack.Fell {
				t.Errorf("%s behind %q: %+v", name, before, v)
			}
		}
	}
	chunks := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range value + aTry().marker() {
		chunks += "1\r\n" + string(c) + "\r\n"
	}
	for _, end := range []string{"0\r\n\r\n", ""} { // whole, and broken off
		if v := aTry().unseen("x", chunks+end, nil); v.outcome != attack.Fell {
			t.Errorf("in pieces: %+v", v)
		}
	}
	if v := aTry().unseen("x", "[sealed] "+aTry().marker(), nil); v.outcome != attack.Held {
		t.Errorf("%+v", v)
	}
	if v := aTry().unseen("x", "[sealed]", nil); v.outcome != attack.Untried {
		t.Errorf("%+v", v)
	}
}

// Without what they need, checks are untried.
func TestNothingLentIsUntried(t *testing.T) {
	all := attempts()
	for _, id := range []string{"credential.altered", "credential.in-query", "credential.repeated", "credential.query-elsewhere", "credential.basic-elsewhere", "credential.git-push", "credential.git-elsewhere", "credential.git-traces"} {
		if v := all[id](aTry()); v.outcome != attack.Untried {
			t.Errorf("%s: %+v", id, v)
		}
	}
	if v := unchanged(way{"nothing", func() error { return errors.New("refused") }}); v.outcome != attack.Untried {
		t.Errorf("without a repository: %+v", v)
	}
}

// Header blocks have the lengths that RFC 7541 §5.1 has in its examples.
func TestFields(t *testing.T) {
	long := strings.Repeat("x", 127+1337)
	b := fields([][2]string{{"a", long}})
	// 0, the name's length, the name, 127, and the rest in sevens of bits.
	if string(b[:3]) != "\x00\x01a" || string(b[3:6]) != "\x7f\xb9\x0a" || len(b) != 6+len(long) {
		t.Errorf("% x…", b[:8])
	}
	said := string(frame(4, 0, 0, nil)) + string(frame(1, 4, 1, []byte{0x8c})) + string(frame(0, 1, 1, []byte("body")))
	if !badRequest(said) || !finished(said) || reset(said) || !reset(said+string(frame(3, 0, 1, []byte{0, 0, 0, 1}))) || finished(said[:len(said)-1]) {
		t.Error("frames are misread")
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(string(frame(1, 5, 1, []byte{0x88})))
	f.Fuzz(func(t *testing.T, said string) {
		n := 0
		frames(said, func(_, _ byte, body string) { n += 9 + len(body) })
		if n > len(said) {
			t.Errorf("%d bytes of %d", n, len(said))
		}
	})
}
