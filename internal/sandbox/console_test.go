package sandbox

import (
	"strings"
	"testing"
)

func FuzzParseSignal(f *testing.F) {
	for _, s := range []string{"TERM", "sigterm", "9", "0", "65", "+9", "09", "SIG", "", "SIGSIGTERM", "RTMIN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := ParseSignal(s)
		if ok && (n < 1 || n > 64) {
			t.Fatalf("%q is %d", s, n)
		}
		if ok && n < len(signalNames) {
			if again, ok := ParseSignal(SignalName(n)); !ok || again != n {
				t.Fatalf("%q is %d, whose name is %s", s, n, SignalName(n))
			}
		}
	})
}

func TestSignalNames(t *testing.T) {
	for s, want := range map[string]int{"HUP": 1, "SIGKILL": 9, "term": 15, "SigStop": 19, "winch": 28, "SYS": 31, "15": 15, "64": 64} {
		if n, ok := ParseSignal(s); !ok || n != want {
			t.Errorf("%s: %d, %v", s, n, ok)
		}
	}
	for _, s := range []string{"", "0", "-1", "65", "015", "SIG", "TERMX", " TERM", "1e1"} {
		if n, ok := ParseSignal(s); ok {
			t.Errorf("%q is signal %d", s, n)
		}
	}
	if SignalName(9) != "SIGKILL" || !strings.Contains(SignalName(40), "40") {
		t.Error(SignalName(9), SignalName(40))
	}
}
