package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"
)

// TestAnyByteOfAReceiptCounts changes every byte of a receipt, one at a time.
func TestAnyByteOfAReceiptCounts(t *testing.T) {
	w := newWorld(t)
	raw := w.receipts[2]
	for i := range raw {
		flipped := slices.Clone(raw)
		flipped[i] ^= 1 << (i % 8)
		report, err := VerifyReceipt(w.key.Public(), flipped)
		if err != nil || report.OK() {
			t.Fatalf("byte %d (%q → %q) changed nothing: %v", i, raw[i], flipped[i], err)
		}
	}
}

// TestAnyChangeOfAReceiptCounts tries arbitrary changes.
func TestAnyChangeOfAReceiptCounts(t *testing.T) {
	w := newWorld(t)
	raw := w.receipts[1]
	rapid.Check(t, func(rt *rapid.T) {
		changed := change(rt, raw)
		if bytes.Equal(bytes.TrimSuffix(changed, []byte("\n")), raw) {
			rt.Skip("unchanged")
		}
		report, err := VerifyReceipt(w.key.Public(), changed)
		if err != nil || report.OK() {
			rt.Fatalf("nothing was found: %v", err)
		}
	})
}

// TestAnyChangeOfAnExportCounts tries arbitrary changes of bytes, and lines
// taken out, doubled and moved.
func TestAnyChangeOfAnExportCounts(t *testing.T) {
	w := newWorld(t)
	all := split(w.exported)
	rapid.Check(t, func(rt *rapid.T) {
		var changed []byte
		at, to := rapid.IntRange(0, len(all)-1).Draw(rt, "line"), rapid.IntRange(0, len(all)-1).Draw(rt, "to")
		switch rapid.IntRange(0, 3).Draw(rt, "how") {
		case 0:
			changed = change(rt, w.exported)
		case 1:
			changed = all.without(at).join()
		case 2:
			changed = slices.Insert(slices.Clone(all), to, all[at]).join()
		case 3:
			changed = slices.Insert(all.without(at), min(to, len(all)-1), all[at]).join()
		}
		if bytes.Equal(changed, w.exported) {
			rt.Skip("unchanged")
		}
		report, err := VerifyLog(w.key.Public(), bytes.NewReader(changed), VerifyOptions{})
		if err != nil || report.OK() {
			rt.Fatalf("nothing was found: %v", err)
		}
	})
}

// change flips a bit, removes, inserts or replaces a byte, or cuts a range.
func change(rt *rapid.T, raw []byte) []byte {
	i := rapid.IntRange(0, len(raw)-1).Draw(rt, "at")
	b := rapid.Byte().Draw(rt, "byte")
	out := slices.Clone(raw)
	switch rapid.IntRange(0, 4).Draw(rt, "change") {
	case 0:
		out[i] ^= 1 << (b % 8)
	case 1:
		out = slices.Delete(out, i, i+1)
	case 2:
		out = slices.Insert(out, i, b)
	case 3:
		out[i] = b
	case 4:
		out = slices.Delete(out, i, min(len(out), i+1+int(b)))
	}
	return out
}

// fixedWorld is the same in every process, so that a fuzzer's corpus keeps its
// meaning.
func fixedWorld(f *testing.F) *world {
	f.Helper()
	skey, _, err := note.GenerateKey(bytes.NewReader(make([]byte, 64)), "cofferdam-0011223344556677")
	if err != nil {
		f.Fatal(err)
	}
	key, err := parseKey(skey)
	if err != nil {
		f.Fatal(err)
	}
	return worldOf(siteWith(f, newMemory(), key), newSite(f))
}

func FuzzVerifyReceipt(f *testing.F) {
	w := fixedWorld(f)
	f.Add(w.receipts[0])
	f.Add([]byte(`{"format":"cofferdam-receipt/1"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		report, err := VerifyReceipt(w.key.Public(), raw)
		if err != nil {
			t.Fatal(err)
		}
		known := slices.ContainsFunc(w.receipts, func(r []byte) bool { return bytes.Equal(r, bytes.TrimSuffix(raw, []byte("\n"))) })
		if report.OK() != known {
			t.Fatalf("verified: %v, made by us: %v", report.OK(), known)
		}
	})
}

func FuzzVerifyLog(f *testing.F) {
	w := fixedWorld(f)
	f.Add(w.exported)
	f.Add(w.early)
	f.Add([]byte("{\"type\":\"header\"}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		report, err := VerifyLog(w.key.Public(), bytes.NewReader(raw), VerifyOptions{Trusted: &w.trusted})
		if err != nil {
			t.Fatal(err)
		}
		if report.OK() != bytes.Equal(raw, w.exported) {
			t.Fatalf("verified: %v", report.OK())
		}
	})
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add("cofferdam-00\n1\n" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\nrecords 5 " + string(zeroDigest) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseCheckpoint(text); ok && c.text() != text {
			t.Fatalf("%q was read as %q", text, c.text())
		}
	})
}

// TestNotesAreVerifiedByOthers checks the signatures of a receipt and of a
// checkpoint with the note package's own Open and with OpenSSL.
func TestNotesAreVerifiedByOthers(t *testing.T) {
	w := newWorld(t)
	var b Bundle
	if err := decodeCanonical(w.receipts[1], &b); err != nil {
		t.Fatal(err)
	}
	for name, msg := range map[string]string{"receipt": b.Note, "checkpoint": b.Checkpoint} {
		v, err := note.NewVerifier(w.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		n, err := note.Open([]byte(msg), note.VerifierList(v))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, err := base64.StdEncoding.DecodeString(n.Sigs[0].Base64)
		if err != nil {
			t.Fatal(err)
		}
		openssl(t, w.key.Public(), n.Text, raw[4:], true)
		openssl(t, w.key.Public(), n.Text+"x", raw[4:], false)
	}
}

func openssl(t *testing.T, vkey, text string, sig []byte, want bool) {
	t.Helper()
	program, err := exec.LookPath("openssl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no openssl here; .ci/packages installs it")
		}
		t.Skip("no openssl here")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(vkey, "+", 3)[2])
	if err != nil || len(raw) != 1+ed25519.PublicKeySize {
		t.Fatalf("key %q: %v", vkey, err)
	}
	der, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(raw[1:]))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	out, err := exec.Command(program, "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin",
		"-in", write("text", []byte(text)), "-sigfile", write("sig", sig)).CombinedOutput()
	if (err == nil) != want {
		t.Errorf("openssl: %v\n%s", err, out)
	}
}

// TestCanonicalFormIsRFC8785 checks the library against the examples of the
// RFC: sections 3.2.2 to 3.2.4 and appendix B.
func TestCanonicalFormIsRFC8785(t *testing.T) {
	for in, want := range map[string]string{
		`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
		  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`: `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
		  "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}`: "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		`[0, -0, 5e-324, 1.7976931348623157e308, 9007199254740992, 295147905179352830000, 999999999999999900000, 1e21, 333333333.33333320]`: `[0,0,5e-324,1.7976931348623157e+308,9007199254740992,295147905179352830000,999999999999999900000,1e+21,333333333.3333332]`,
	} {
		got, err := jcs.Transform([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("got  %s\nwant %s (%v)", got, want, err)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `"\ud800"`, `{"a":NaN}`, `[1,]`, `{} x`} {
		if got, err := jcs.Transform([]byte(bad)); err == nil {
			t.Errorf("%s was taken as %s", bad, got)
		}
	}
}
