package evidence

import (
	"archive/tar"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/task"
)

// signer makes a key and what signs under it.
func signer(t testing.TB) (public string, sign func(string, task.Digest) (string, error)) {
	t.Helper()
	key, err := audit.NewKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return key.Public(), key.SignEvidence
}

// archive makes a small one.
func archive(t testing.TB, sign func(string, task.Digest) (string, error)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := New(&out, Head{Origin: "o", Sandbox: "sb-aaaaaaaaaaaaaaaa", MadeAt: time.Unix(1, 0).UTC()})
	if err := w.JSON("task.json", "control plane", map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("files/workspace.tar", "guest", 5, strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
	w.Leave("memory", "it is not taken")
	for _, bad := range []string{"", "../x", "/etc/passwd", "a/../b", "manifest.json", "manifest.note", "task.json", "a//b", "A", strings.Repeat("a", 201)} {
		if err := w.Add(bad, "guest", 0, strings.NewReader("")); err == nil {
			t.Errorf("%q is an entry", bad)
		}
	}
	if _, err := w.Close(sign); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// member is one entry of a tar file.
type member struct {
	tar.Header
	text string
}

// members takes an archive apart, and pack makes one again.
func members(t *testing.T, raw []byte) (all []member) {
	t.Helper()
	in := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, member{*h, string(text)})
	}
}

func pack(t *testing.T, all []member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range all {
		h := m.Header
		h.Size = int64(len(m.text))
		if h.Typeflag != tar.TypeReg {
			h.Size = 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, m.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestVerify(t *testing.T) {
	public, sign := signer(t)
	other, otherSign := signer(t)
	raw := archive(t, sign)
	report := Verify(public, bytes.NewReader(raw))
	if !report.OK() || report.Key == "" || report.Manifest.Sandbox != "sb-aaaaaaaaaaaaaaaa" || len(report.Manifest.Entries) != 2 || report.Manifest.Left[0].Name != "memory" {
		t.Fatalf("%+v", report)
	}
	if two := Verify(public+"\n"+public, bytes.NewReader(raw)); !two.OK() {
		t.Errorf("the key twice: %v", two.Findings)
	}
	all := members(t, raw)
	link := member{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "files/link", Linkname: "/etc/passwd"}}
	more := member{Header: tar.Header{Typeflag: tar.TypeReg, Name: "more.json", Mode: 0o600}, text: "x"}
	changed := func(i int, text string) []member {
		out := slices.Clone(all)
		out[i].text = text
		return out
	}
	for name, c := range map[string]struct {
		raw  []byte
		key  string
		want string
	}{
		"another key":               {raw, other, "it was signed by the key"},
		"no key":                    {raw, "", "none was given"},
		"signed by another":         {archive(t, otherSign), public, "it was signed by the key"},
		"an altered file":           {pack(t, changed(1, "12346")), public, `"files/workspace.tar" was altered`},
		"a longer file":             {pack(t, changed(1, "123456")), public, "was altered"},
		"an altered manifest":       {pack(t, changed(2, strings.Replace(all[2].text, "it is not taken", "it was not asked", 1))), public, "another manifest"},
		"a manifest of another one": {pack(t, changed(2, strings.Replace(all[2].text, "sb-aaaaaaaaaaaaaaaa", "sb-bbbbbbbbbbbbbbbb", 1))), public, "another manifest"},
		"a manifest with more":      {pack(t, changed(2, strings.Replace(all[2].text, `"origin"`, `"more":1,"origin"`, 1))), public, "can't be read"},
		"noise for a note":          {pack(t, changed(3, "noise\n")), public, "not a signed note"},
		"a missing file":            {pack(t, all[1:]), public, `"task.json" is missing`},
		"one more":                  {pack(t, append([]member{more}, all...)), public, `"more.json" is not in the manifest`},
		"one behind the signature":  {pack(t, append(slices.Clone(all), more)), public, "stands behind the signature"},
		"one behind the manifest":   {pack(t, append(slices.Clone(all[:3]), more, all[3])), public, "stands behind the manifest"},
		"a link":                    {pack(t, append([]member{link}, all...)), public, `"files/link" is no file`},
		"one twice":                 {pack(t, append([]member{all[0]}, all...)), public, "there twice"},
		"no signature":              {pack(t, all[:3]), public, "no signature"},
		"no manifest":               {pack(t, all[:2]), public, "no manifest"},
		"nothing":                   {nil, public, "no manifest"},
		"noise":                     {[]byte(strings.Repeat("x", 2000)), public, "damaged"},
	} {
		report := Verify(c.key, bytes.NewReader(c.raw))
		if report.OK() || !strings.Contains(strings.Join(report.Findings, "; "), c.want) {
			t.Errorf("%s: %q", name, report.Findings)
		}
	}
	// Cut anywhere before the last byte of the signature, it does not verify.
	for n := range bytes.LastIndex(raw, []byte("\n\x00")) {
		if n%97 == 0 && Verify(public, bytes.NewReader(raw[:n])).OK() {
			t.Errorf("cut at %d it verifies", n)
		}
	}
}

func TestWriterHoldsToSizes(t *testing.T) {
	w := New(io.Discard, Head{})
	if err := w.Add("a", "guest", 5, strings.NewReader("123")); err == nil {
		t.Error("too few bytes")
	}
}

func FuzzVerify(f *testing.F) {
	public, sign := signer(f)
	raw := archive(f, sign)
	f.Add(raw)
	f.Add(raw[:1024])
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if Verify(public, bytes.NewReader(in)).OK() && !bytes.Equal(bytes.TrimRight(in, "\x00"), bytes.TrimRight(raw, "\x00")) {
			// Headers of tar are not signed: names, sizes and bytes are.
			report := Verify(public, bytes.NewReader(in))
			if len(report.Manifest.Entries) != 2 {
				t.Errorf("%+v", report)
			}
		}
	})
}
