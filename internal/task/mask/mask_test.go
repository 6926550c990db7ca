package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/task"
)

func of(values ...string) *Masker {
	list := make([]task.Secret, 0, len(values))
	for _, v := range values {
		list = append(list, task.NewSecret(v))
	}
	return New(list...)
}

// every spells each byte in the same way.
func every(format, value string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

// The forms in which a value comes back (the cases of B11).
func forms(value string) map[string]string {
	quoted, _ := json.Marshal(value)
	inJSON := string(quoted[1 : len(quoted)-1])
	out := map[string]string{
		"exact": value, "hex": hex.EncodeToString([]byte(value)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(value))),
		"query": url.QueryEscape(value), "query, lower": every("%%%02x", value), "path": url.PathEscape(value), "percent": every("%%%02X", value),
		"JSON": inJSON, "JSON, slashes": strings.ReplaceAll(inJSON, "/", `\/`), "JSON, all": every(`\u%04x`, value), "JSON, ALL": every(`\u00%02X`, value),
		"program text": every(`\x%02x`, value), "HTML": html.EscapeString(value),
		"mixed": value[:3] + every("%%%02x", value[3:5]) + every(`\u%04x`, value[5:7]) + value[7:],
	}
	for before := range 3 {
		for name, e := range map[string]*base64.Encoding{
			"std": base64.StdEncoding, "raw": base64.RawStdEncoding, "url": base64.URLEncoding, "raw url": base64.RawURLEncoding,
		} {
			text := e.EncodeToString([]byte("abc"[:before] + value))
			out[fmt.Sprintf("base64 %s, %d before", name, before)] = text
			out[fmt.Sprintf("base64 %s, %d before, in an address", name, before)] = url.QueryEscape(text)
		}
	}
	out["Basic"] = "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+value))
	return out
}

func TestForms(t *testing.T) {
	for _, value := range []string{
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-ant-a+b/c&d=e\"f\\g h%i<j>k?_", "p/a+s s%41:wörd~", `a\\b%25c\nd"`, "12345678",
	} {
		m := of("unrelated-value", value)
		for name, form := range forms(value) {
			if strings.HasPrefix(name, "mixed") && strings.ContainsAny(value, `%\`) {
				continue
			}
			text := "before <" + form + "> after"
			covered := m.Cover(text)
			if len(covered) != len(text) || !strings.HasPrefix(covered, "before <") || !strings.HasSuffix(covered, "> after") {
				t.Errorf("%s of %q: covered %q", name, value, covered)
			}
			// Of base64 a character at each end stays, and what stood beside.
			least := len(form)
			if strings.HasPrefix(name, "base64") || name == "Basic" {
				least = len(value)*8/6 - 2
			}
			if strings.Count(covered, string(m.mark)) < least {
				t.Errorf("%s of %q: %q", name, value, covered)
			}
			if got := m.Seal(text); !strings.Contains(got, sealed) || m.Found([]byte(got)) {
				t.Errorf("%s of %q: sealed %q", name, value, got)
			}
		}
	}
}

func TestWhatIsLeftAlone(t *testing.T) {
	m := of("abcabcabd", "user:password-of-it", "AKIAIOSFODNN7EXAMPLE:secretsecretsecret", "abc")
	for text, want := range map[string]string{
		"":                         "",
		"abcabcab":                 "abcabcab",
		"abcabcabd":                sealed,
		"x abcabcabcabd y":         "x abc" + sealed + " y",
		"abcabcabdabcabcabd":       sealed + sealed,
		"user abc":                 "user abc",
		"a password-of-it":         "a " + sealed,
		"<AKIAIOSFODNN7EXAMPLE>":   "<" + sealed + ">",
		"secretsecretsecret":       sealed,
		"100% \\ %6 \\u00 %61bc\\": "100% \\ %6 \\u00 %61bc\\",
	} {
		if got := m.Seal(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if New() != nil || of("", "abc") != nil {
		t.Error("a Masker of nothing")
	}
	var none *Masker
	if none.Seal("text") != "text" || none.Cover("text") != "text" || none.Found([]byte("text")) {
		t.Error("no Masker masks")
	}
	if s := fmt.Sprintf("%v %+v", of("overlap-ab", "ab-overlap").Cover("overlap-ab-overlap."), ""); s != strings.Repeat("*", 18)+". " {
		t.Errorf("overlapping: %s", s)
	}
}

// pieces masks b as it comes in pieces that end at the cuts.
func pieces(m *Masker, cover bool, b []byte, cuts []int) string {
	var out bytes.Buffer
	w := NewWriter(&out, func() *Masker { return m }, Options{Cover: cover})
	at := 0
	for _, c := range cuts {
		if c = c % (len(b) + 1); c > at {
			_, _ = w.Write(b[at:c])
			at = c
		}
	}
	_, _ = w.Write(b[at:])
	_ = w.Close()
	return out.String()
}

func TestPieces(t *testing.T) {
	const value = "sk-a+b/c&d=e\"f g%i<j"
	m := of(value)
	for name, form := range forms(value) {
		text := []byte("s sk " + form + form + " sk-a")
		for _, cover := range []bool{false, true} {
			want := pieces(m, cover, text, nil)
			for cut := range text {
				if got := pieces(m, cover, text, []int{cut}); got != want {
					t.Errorf("%s, cut at %d: %q, want %q", name, cut, got, want)
				}
			}
			for reader, from := range map[string]io.Reader{
				"whole": bytes.NewReader(text), "bytes": iotest.OneByteReader(bytes.NewReader(text)), "data with its end": iotest.DataErrReader(bytes.NewReader(text)),
			} {
				got, err := io.ReadAll(iotest.HalfReader(NewReader(io.NopCloser(from), m, Options{Cover: cover})))
				if string(got) != want || err != nil {
					t.Errorf("%s, %s: %q, %v", name, reader, got, err)
				}
			}
		}
	}
	broken := NewReader(io.NopCloser(io.MultiReader(strings.NewReader("x sk-a"), iotest.ErrReader(io.ErrUnexpectedEOF))), m, Options{})
	if got, err := io.ReadAll(broken); string(got) != "x sk-a" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("one that breaks off: %q, %v", got, err)
	}
}

// Whatever text has values in whatever forms, however it is cut: nothing of them
// is left, lengths stay, and the cuts don't matter.
func TestPropertyCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[a-cA-C0-2 +/&"<=_-]{8,20}`), 1, 3).Draw(t, "values")
		m := of(values...)
		var text strings.Builder
		for range rapid.IntRange(0, 5).Draw(t, "parts") {
			value := rapid.SampledFrom(values).Draw(t, "value")
			list := forms(value)
			name := rapid.SampledFrom(keysOf(list)).Draw(t, "form")
			text.WriteString(list[name])
			text.WriteString(rapid.StringMatching(`[a-c +%\\u0]{0,6}`).Draw(t, "between"))
			text.WriteString(value[:rapid.IntRange(0, len(value)-1).Draw(t, "begun")])
		}
		b := []byte(text.String())
		cuts := rapid.SliceOf(rapid.IntRange(0, len(b)+1)).Draw(t, "cuts")
		for _, cover := range []bool{true, false} {
			want := pieces(m, cover, b, nil)
			if got := pieces(m, cover, b, cuts); got != want {
				t.Fatalf("%q cut at %v: %q, want %q", b, cuts, got, want)
			}
			if cover && len(want) != len(b) || m.Found([]byte(want)) {
				t.Fatalf("%q: %q", b, want)
			}
		}
	})
}

func keysOf(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	// Drawing must not hang on the order of a map.
	for i := range out {
		for j := i + 1; j < len(out); j++ {
			if out[j] < out[i] {
				out[i], out[j] = out[j], out[i]
			}
		}
	}
	return out
}

// FuzzMask: any split of any input gives what the unsplit gives, what is covered
// keeps its length, and the value itself never survives.
func FuzzMask(f *testing.F) {
	for name, form := range forms("sk-a+b/c&d=e\"f g%i<j") {
		f.Add("sk-a+b/c&d=e\"f g%i<j", []byte(name+form+form), uint16(len(name)+3), uint16(len(name)+9))
	}
	f.Add("aaaaaaaa", bytes.Repeat([]byte("a"), 40), uint16(3), uint16(30))
	f.Add(`\\\\\\\\`, []byte(`\\\\\\\\\\\u005c\`), uint16(3), uint16(9))
	f.Add("%25%25%25", []byte("%25%2525%25%25%"), uint16(5), uint16(9))
	f.Fuzz(func(t *testing.T, value string, text []byte, a, b uint16) {
		if len(value) < 8 || len(value) > 300 || len(text) > 4096 {
			return
		}
		m := of(value)
		a, b = min(a, b), max(a, b)
		for _, cover := range []bool{true, false} {
			want := pieces(m, cover, text, nil)
			if got := pieces(m, cover, text, []int{int(a), int(b)}); got != want {
				t.Fatalf("cut at %d and %d: %q, want %q", a, b, got, want)
			}
			if cover && len(want) != len(text) {
				t.Fatalf("%d bytes of %d", len(want), len(text))
			}
			if cover && !strings.Contains(value, string(m.mark)) && strings.Contains(want, value) {
				t.Fatalf("%q has %q", want, value)
			}
		}
	})
}

// A whole event arrives at once, a short end after a while, and the rest of a
// value whose beginning was let go never.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		flushed := 0
		m := of("sk-secret-value")
		w := NewWriter(&out, func() *Masker { return m }, Options{Cover: true, Idle: 200 * time.Millisecond, Flush: func() { flushed++ }})
		step := func(text string, wait time.Duration, want string) {
			t.Helper()
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait) // of the bubble's clock
			synctest.Wait()
			if got := out.String(); got != want {
				t.Fatalf("after %q: %q, want %q", text, got, want)
			}
		}
		step("data: one\n\n", 0, "data: one\n\n")
		out.Reset()
		step("yes", 100*time.Millisecond, "ye")
		step("", 200*time.Millisecond, "yes")
		step("k-", 300*time.Millisecond, "yesk-")
		step("secret", 10*time.Second, "yesk-")
		step("-value.", 0, "yesk-************.")
		if flushed != 2 {
			t.Errorf("flushed %d times", flushed)
		}
		step("sk", 0, "yesk-************.")
		if err := w.Close(); err != nil || !strings.HasSuffix(out.String(), ".sk") {
			t.Errorf("%q, %v", out.String(), err)
		}
		time.Sleep(time.Second)
		if _, err := w.Write([]byte("x")); err == nil || flushed != 2 {
			t.Errorf("closed: %v, flushed %d times", err, flushed)
		}
	})
}

// A value that comes to be known while a stream goes on counts from then on.
func TestMaskerChanges(t *testing.T) {
	var out bytes.Buffer
	var m *Masker
	w := NewWriter(&out, func() *Masker { return m }, Options{})
	_, _ = io.WriteString(w, "first-value ")
	m = of("first-value")
	_, _ = io.WriteString(w, "first-value first-")
	m = of("first-value", "second-value")
	_, _ = io.WriteString(w, "value second-value first")
	w.Abandon()
	if got, want := out.String(), "first-value [sealed] [sealed] [sealed] "; got != want {
		t.Errorf("%q", got)
	}
}

func BenchmarkMask(b *testing.B) {
	m := of("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-ant-REDACTED")
	text := []byte(strings.Repeat(`{"id":"msg_01","type":"text","path":"a\/b","url":"https://far.test/a%20b?c=d"}`+"\n", 400))
	binary := make([]byte, 32<<10)
	for i := range binary {
		binary[i] = byte(i * i >> 3)
	}
	for name, data := range map[string][]byte{"text": text, "binary": binary} {
		b.Run(name, func(b *testing.B) {
			w := NewWriter(io.Discard, func() *Masker { return m }, Options{Cover: true})
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = w.Write(data)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	v := task.NewSecret("ghp_16C7e42F292c6912E7710c838347Ae178B4a")
	b.ReportAllocs()
	for b.Loop() {
		New(v)
	}
}
