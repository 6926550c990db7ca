package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":                  "plain text",
		"grüße 日本語 🚀 ①":               "grüße 日本語 🚀 ①",
		"\x1b[2J":                     `\x1b[2J`,
		"\x1b]52;c;eA==\a":            `\x1b]52;c;eA==\x07`,
		"\x1b]8;;http://x\x1b\\":      `\x1b]8;;http://x\x1b\`,
		"a\rb":                        `a\x0db`,
		"a\bb":                        `a\x08b`,
		"nul\x00":                     `nul\x00`,
		"del\x7f":                     `del\x7f`,
		"c1\u009b31m":                 `c1\u009b31m`,
		"raw c1 \x9b31m":              `raw c1 \x9b31m`,
		"\u202egnp.exe":               `\u202egnp.exe`,
		"\u2066iso\u2069":             `\u2066iso\u2069`,
		"zero\u200bwidth\u200d\ufeff": `zero\u200bwidth\u200d\ufeff`,
		"tag\U000e0041":               `tag\U000e0041`,
		"filler\u3164\u115f":          `filler\u3164\u115f`,
		"line\u2028sep":               `line\u2028sep`,
		"private\ue000":               `private\ue000`,
		"a\nb\tc":                     `a\nb\tc`,
		"soft\u00adhyphen":            `soft\u00adhyphen`,
	} {
		if got := shown(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := shownText("a\n\tb\r"); got != "a\n\tb\\x0d" {
		t.Errorf("text: %q", got)
	}
}

// harmless says whether nothing in s can do more than put ink on paper.
func harmless(s string) bool {
	for _, r := range s {
		if r != '\n' && r != '\t' && !plain(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// However a stream is cut into writes, the same is shown, and it is harmless.
func FuzzEscaper(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2Jb", "é\u202e\xff", "\xe2\x82", "🚀\xf0\x9f", "\u009b"} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if cut < 1 {
			cut = 1
		}
		var out bytes.Buffer
		e := newEscaper(&out)
		for rest := in; len(rest) > 0; {
			n := min(cut, len(rest))
			if _, err := e.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if want := shownText(string(in)); out.String() != want {
			t.Errorf("%q in pieces of %d: %q, want %q", in, cut, out.String(), want)
		}
		if !harmless(out.String()) {
			t.Errorf("%q: shows %q", in, out.String())
		}
	})
}

// A document is harmless to look at and means what it meant.
func FuzzDocument(f *testing.F) {
	for _, s := range []string{"", "\x1b[2J", "\u202e\u009b", "\U000e0041", "<&>\u2028", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		var out bytes.Buffer
		if err := printJSON(&out, map[string]string{"s": s}); err != nil {
			t.Fatal(err)
		}
		if !harmless(out.String()) {
			t.Errorf("%q: document %q", s, out.String())
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["s"] != s {
			t.Errorf("%q came back as %q, %v", s, back["s"], err)
		}
	})
}

// The exit codes of the command line are those of the reasons.
func TestExitCodesAreThoseOfTheReasons(t *testing.T) {
	for _, r := range []task.Reason{
		task.ReasonNone, task.InfraWorkerLost, task.InfraSandboxLost, task.InfraSandboxCreate, task.InfraEgressRestarted, task.InfraEgressAway,
		task.InfraControlAway, task.InfraStorage, task.InfraInternal, task.InfraExhausted, task.InputInvalid, task.InputPolicy,
		task.InputRepository, task.InputConflict, task.InputNotFound, task.InputUnauthed, task.LimitTime, task.LimitMemory, task.LimitPIDs,
		task.LimitDisk, task.LimitOutput, task.LimitNames, task.LimitConnections, task.LimitSize, task.PolicyDenied, task.PolicyAddress,
		task.PolicyNameMismatch, task.PolicyProtocol, task.EgressUnresolved, task.EgressUnreachable, task.CheckoutFailed, task.SetupFailed,
		task.AgentFailed, task.ExportFailed, task.VerifyFailed, task.PatchFailed, task.ApprovalExpired, task.Cancelled, "nonsense.code",
	} {
		if got, want := api.ExitCode(string(r)), r.ExitCode(); got != want {
			t.Errorf("%s: %d, want %d", r, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "512m": 512 << 20, "4G": 4 << 30, "1.5k": 1536, "2GiB": 2 << 30, "10kb": 10 << 10, "1t": 1 << 40, "": 0} {
		if got, err := parseSize("--x", text); err != nil || got != want {
			t.Errorf("%q: %d %v", text, got, err)
		}
	}
	for _, text := range []string{"b", "k", "-1", "0", "1x", "NaN", "inf", "9999999t", "1 k"} {
		if got, err := parseSize("--x", text); err == nil {
			t.Errorf("%q: taken as %d", text, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1200: "1.2 kB", 999_900: "1.0 MB", 12_000_000: "12 MB", 3 << 30: "3.2 GB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for text, want := range map[string]int64{"1.5": 1500, "0.25": 250, "": 0} {
		if got, err := parseCPUs(text); err != nil || got != want {
			t.Errorf("cpus %q: %d %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-1", "NaN", "x"} {
		if _, err := parseCPUs(text); err == nil {
			t.Errorf("cpus %q: taken", text)
		}
	}
}

// On a terminal the stage that runs stands below what is done, and lines of
// the agent don't mix with it.
func TestProgressInPlace(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, false)
	p.colour = true
	p.stage(api.Stage{Name: "agent", State: "running"})
	w := p.through()
	for _, s := range []string{"half ", "line\nnext", " one\n"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	p.stage(api.Stage{Name: "agent", State: "failed", Reason: "agent.failed", Text: "x\x1by"})
	p.done()
	got := out.String()
	for _, want := range []string{"half line\n", "next one\n", "failed, agent.failed: x\\x1by\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.HasSuffix(got, "· agent") || !strings.Contains(got, "\r\x1b[K") {
		t.Errorf("the unfinished line stays: %q", got)
	}
}
