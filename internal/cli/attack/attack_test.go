package attack

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// what has everything of a run but a server.
func what() *assault {
	return &assault{got: map[string]attack.Result{}, over: func() bool { return false }, can: &canaries{hits: map[string]string{}}}
}

func TestWhatIsNotReachedInTimeIsUntried(t *testing.T) {
	checks := []attack.Check{{ID: "a.held"}, {ID: "a.fell"}, {ID: "a.said-late"}, {ID: "a.fell-late"}, {ID: "a.unsaid"}, {ID: "a.canary"}, {ID: "a.server"}, {ID: "a.failed"}}
	a := what()
	ctx, use := context.WithCancelCause(t.Context())
	err := a.timed(ctx, checks, func(ctx context.Context) error {
		a.say("a.held", attack.Held, "it was refused")
		a.say("a.fell", attack.Fell, "it was not")
		use(errCut) // the time is used up
		a.say("a.held", attack.Fell, "a request that was cut")
		a.say("a.said-late", attack.Held, "a request that was cut")
		a.say("a.fell-late", attack.Fell, "a request that was cut")
		a.untried([]string{"a.failed"}, ctx.Err())
		a.can.note("x"+a.can.nonce+"/a.canary", "here")
		a.struck("a.server", "it arrived")
		return errors.New("something is left")
	})
	if err == nil {
		t.Error("what is left is not told")
	}
	rep := a.report(checks)
	want := map[string]string{
		"a.held": attack.Held, "a.fell": attack.Fell, "a.said-late": attack.Untried, "a.fell-late": attack.Untried, "a.unsaid": attack.Untried,
		"a.canary": attack.Fell, "a.server": attack.Fell, "a.failed": attack.Untried,
	}
	for _, c := range rep.Checks {
		if c.Outcome != want[c.ID] {
			t.Errorf("%+v, want %s", c, want[c.ID])
		}
		if c.Outcome == attack.Untried && c.Happened != errCut.Error() {
			t.Errorf("%s does not say why: %q", c.ID, c.Happened)
		}
	}
	if !rep.Cut || rep.OK {
		t.Errorf("%+v", rep)
	}
}

// Nothing of a run that was cut before it began reads as held, in no form of the
// report.
func TestReportOfARunThatWasCut(t *testing.T) {
	checks := attack.Select("", false)
	a := what()
	ctx, use := context.WithCancelCause(t.Context())
	use(errCut)
	_ = a.timed(ctx, checks, func(context.Context) error {
		for _, k := range checks {
			a.say(k.ID, attack.Held, "too late")
		}
		return nil
	})
	rep := a.report(checks)
	var text, page strings.Builder
	if err := errors.Join(List(&text, rep), Page(&page, rep)); err != nil {
		t.Fatal(err)
	}
	if rep.Held != 0 || rep.Untried != len(checks) || !strings.Contains(text.String(), "time was used up") || !strings.Contains(page.String(), "time was used up") || strings.Contains(page.String(), `<td class="held">`) {
		t.Errorf("%d held, %d untried:\n%s", rep.Held, rep.Untried, text.String())
	}
	for _, k := range checks {
		if !strings.Contains(text.String(), k.ID) || !strings.Contains(page.String(), "<code>"+k.ID+"</code>") {
			t.Errorf("%s is not in each form", k.ID)
		}
	}
	var doc struct {
		Checks []map[string]any
		Cut    bool
	}
	raw, err := json.Marshal(rep)
	if err == nil {
		err = json.Unmarshal(raw, &doc)
	}
	if err != nil || !doc.Cut || len(doc.Checks) != len(checks) || len(doc.Checks[0]) != 4 {
		t.Errorf("%v, %+v", err, doc.Checks[0])
	}
}

// A run that ends by itself is not cut, and one that was told to stop isn't either.
func TestRunThatIsNotCut(t *testing.T) {
	checks := []attack.Check{{ID: "a.held"}, {ID: "a.unsaid"}}
	for _, stopped := range []bool{false, true} {
		a := what()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := a.timed(ctx, checks, func(context.Context) error {
			if stopped {
				cancel()
			}
			a.say("a.held", attack.Held, "it was refused")
			return nil
		}); err != nil {
			t.Error(err)
		}
		if rep := a.report(checks); rep.Cut || rep.Held != 1 || rep.Untried != 1 {
			t.Errorf("%+v", rep)
		}
	}
}

// Without a value that arrived where it belongs, refusals prove nothing.
func TestDoubt(t *testing.T) {
	a := what()
	a.say("credential.a", attack.Held, "refused")
	a.say("credential.b", attack.Fell, "it arrived")
	a.doubt("credential.a", "no value arrived")
	a.doubt("credential.b", "no value arrived")
	if a.got["credential.a"].Outcome != attack.Untried || a.got["credential.b"].Outcome != attack.Fell {
		t.Errorf("%+v", a.got)
	}
}
