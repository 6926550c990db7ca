package issuer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestTokenSaysWhoTheRunIs(t *testing.T) {
	r := newRig(t)
	p := serve(t, r, live(r))
	token := r.token()
	if err := p.accepts(token, audience); err != nil {
		t.Fatalf("go-oidc: %v", err)
	}
	if p.accepts(token, "another") == nil {
		t.Error("it is good for another audience")
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var c Claims
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	now := r.tick().Unix()
	want := Claims{
		Issuer: issuerURL, Subject: "project:shop:repository:forge.example/team/app:ref:main:stage:agent", Audience: audience,
		Issued: now, From: now - 10, Expires: now + 600, ID: c.ID,
		Task: taskID, Stage: task.Agent, Attempt: 2, Sandbox: box, Worker: "w-1", Project: "shop", Repository: "forge.example/team/app",
		Ref: "main", Commit: "c0ffee", Requester: "alice", PolicyDigest: "sha256:00", Agent: "claude",
	}
	if c != want || len(c.ID) != 32 {
		t.Errorf("claims\n%+v, want\n%+v", c, want)
	}
	if len(r.facts) != 1 || r.facts[0].ID != c.ID || r.facts[0].Audience != audience || r.facts[0].Lease != lease(true).ID || !r.facts[0].HandedOver || r.facts[0].Until.Unix() != c.Expires {
		t.Errorf("recorded %+v", r.facts)
	}
	if raw, err := json.Marshal(r.facts); err != nil || strings.Contains(string(raw), strings.Split(token, ".")[2]) {
		t.Error("the record holds the token")
	}
}

func TestEachTokenIsItsOwn(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			s, err := r.i.Token(context.WithoutCancel(t.Context()), lease(false), audience)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[s.Reveal()] = true
		})
	}
	all.Wait()
	if len(seen) != 50 || len(r.facts) != 50 || r.facts[0].HandedOver {
		t.Errorf("%d tokens, %d records", len(seen), len(r.facts))
	}
}

func TestNoToken(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig, l *task.Lent, audience *string)
		reason task.Reason
		text   string
	}{
		"not configured":                {func(r *rig, _ *task.Lent, _ *string) { r.o.URL = ""; r.open() }, task.PolicyCredential, "--issuer"},
		"zero lease":                    {func(_ *rig, l *task.Lent, _ *string) { *l = task.Lent{} }, task.PolicyCredential, "ended"},
		"ended lease":                   {func(r *rig, l *task.Lent, _ *string) { at := r.tick(); l.Until = &at }, task.PolicyCredential, "ended"},
		"no audience":                   {func(_ *rig, _ *task.Lent, a *string) { *a = "" }, task.PolicyCredential, "audience"},
		"an audience with a line break": {func(_ *rig, _ *task.Lent, a *string) { *a = "a\nb" }, task.PolicyCredential, "audience"},
		"ended task":                    {func(r *rig, _ *task.Lent, _ *string) { r.task.State = task.Succeeded }, task.PolicyCredential, "ended"},
		"unknown task":                  {func(r *rig, _ *task.Lent, _ *string) { r.task.ID = "t-b" }, task.InputNotFound, "no task"},
		"not recorded":                  {func(r *rig, _ *task.Lent, _ *string) { r.fails = task.Fail(task.InfraStorage, "the disk is full", nil) }, task.InfraStorage, "full"},
		"lost key":                      {func(r *rig, _ *task.Lent, _ *string) { write(r.t, r.file(), "{}"); r.open() }, task.InfraVault, "identity.json"},
		"altered key": {func(r *rig, _ *task.Lent, _ *string) {
			write(r.t, r.file(), strings.Replace(read(r.t, r.file()), `"kid":"`, `"kid":"x`, 1))
			r.open()
		}, task.InfraVault, "not the one it says"},
		"another's private part": {func(r *rig, _ *task.Lent, _ *string) {
			k, err := makeKey(RS256, r.now, r.now)
			if err != nil {
				r.t.Fatal(err)
			}
			ring := r.i.keys
			ring.Keys[0].Private = k.Private
			if err := ring.write(r.file()); err != nil {
				r.t.Fatal(err)
			}
			r.open()
		}, task.InfraVault, "does not belong"},
		"a key that others can read": {func(r *rig, _ *task.Lent, _ *string) {
			if err := os.Chmod(r.file(), 0o644); err != nil {
				r.t.Fatal(err)
			}
			r.open()
		}, task.InfraVault, "0600"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.t = t
			l, a := lease(true), audience
			c.change(r, &l, &a)
			s, err := r.i.Token(t.Context(), l, a)
			wants(t, err, c.reason, c.text)
			if err == nil && !s.Empty() {
				t.Error("a token is given out")
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTooOften(t *testing.T) {
	r := newRig(t)
	n := 0
	for ; n < 1000; n++ {
		if !r.i.pace.May("l-a", r.tick()) {
			break
		}
	}
	if n != tokenBurst || r.i.pace.May("l-a", r.tick()) || !r.i.pace.May("l-b", r.tick()) {
		t.Errorf("%d at once", n)
	}
	r.sleep(time.Second)
	if !r.i.pace.May("l-a", r.tick()) {
		t.Error("it never comes back")
	}
}

func TestOptions(t *testing.T) {
	r := newRig(t)
	for _, bad := range []string{
		"http://issuer.example", "issuer.example", "https://", "https://u:p@issuer.example", "https://issuer.example/", "https://issuer.example?x", "https://issuer.example#x",
		"https://issuer.example?", "https://Issuer.example", "https://issuer.example/a b",
	} {
		o := r.o
		o.URL = bad
		_, err := Open(o)
		wants(t, err, task.InputInvalid, "--issuer")
	}
	o := r.o
	o.Delay = time.Minute
	_, err := Open(o)
	wants(t, err, task.InputInvalid, "--identity-publish-delay")
	if _, err := Open(Options{}); err == nil {
		t.Error("the zero options are taken")
	}
	o.URL, o.Delay = "https://issuer.example:8443/run", 0
	if i, err := Open(o); err != nil || i.URL() != o.URL {
		t.Error(err)
	}
}

// Without an issuer nothing is made and nothing is published.
func TestNotConfigured(t *testing.T) {
	r := newRig(t)
	r.o.URL, r.o.Dir = "", t.TempDir()
	r.open()
	for what, err := range map[string]error{
		"discovery": second(r.i.Discovery()), "keys": second(r.i.KeySet()), "list": second(r.i.Keys()),
	} {
		wants(t, err, task.InputNotFound, "--issuer")
		_ = what
	}
	_, err := r.i.Rotate(t.Context(), "", "admin", false)
	wants(t, err, task.InputConflict, "--issuer")
	if err := r.i.Published(t.Context(), http.DefaultClient); err != nil {
		t.Error(err)
	}
	if files, _ := os.ReadDir(r.o.Dir); len(files) > 0 {
		t.Errorf("made %v", files)
	}
}

func second[T any](_ T, err error) error { return err }

func TestSubjects(t *testing.T) {
	for _, c := range []struct {
		spec task.Spec
		want string
	}{
		{task.Spec{}, "project:-:repository:bundle:ref:HEAD:stage:verify"},
		{task.Spec{Repo: task.Repo{Bundle: "sha256:00", Name: "https://forge.example/team/app"}}, "project:-:repository:bundle:ref:HEAD:stage:verify"},
		{task.Spec{Repo: task.Repo{URL: "https://forge.example:443/a/b/"}}, "project:-:repository:forge.example/a/b:ref:HEAD:stage:verify"},
		{task.Spec{Repo: task.Repo{URL: "https://u:secret@forge.example:8443/a/b.git"}}, "project:-:repository:forge.example%3A8443/a/b:ref:HEAD:stage:verify"},
		{task.Spec{Repo: task.Repo{URL: "https://forge.example./a:ref:main"}}, "project:-:repository:forge.example/a%3Aref%3Amain:ref:HEAD:stage:verify"},
		{task.Spec{Project: "shop", Repo: task.Repo{URL: "https://forge.example/a", Ref: "main:stage:agent"}}, "project:shop:repository:forge.example/a:ref:main%3Astage%3Aagent:stage:verify"},
		{task.Spec{Repo: task.Repo{URL: "https://forge.example/a%3ab", Ref: "é*?\"\\ \n"}}, "project:-:repository:forge.example/a%253ab:ref:%C3%A9%2A%3F%22%5C%20%0A:stage:verify"},
		{task.Spec{Repo: task.Repo{URL: "https://[2001:db8::1]/a"}}, "project:-:repository:[2001%3Adb8%3A%3A1]/a:ref:HEAD:stage:verify"},
		{task.Spec{Repo: task.Repo{URL: "::"}}, "project:-:repository:unknown:ref:HEAD:stage:verify"},
	} {
		got := claimsOf(task.Task{Spec: c.spec}, task.Lent{Stage: task.Verify}, "").Subject
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.spec, got, c.want)
		}
	}
}

// FuzzSubject: no part of a subject can pass for another.
func FuzzSubject(f *testing.F) {
	f.Add("shop", "https://forge.example/a:b", "main:stage:agent")
	f.Add("", "https://forge.example/%3Astage%3A", "refs/heads/é\x00")
	f.Fuzz(func(t *testing.T, project, repo, ref string) {
		c := claimsOf(task.Task{Spec: task.Spec{Project: project, Repo: task.Repo{URL: repo, Ref: ref}}}, task.Lent{Stage: task.Setup}, "")
		fields := strings.Split(c.Subject, ":")
		if len(fields) != 8 || fields[0] != "project" || fields[2] != "repository" || fields[4] != "ref" || fields[6] != "stage" || fields[7] != "setup" {
			t.Fatalf("%q", c.Subject)
		}
		for _, b := range []byte(c.Subject) {
			if b <= ' ' || b >= 0x7f || b == '*' || b == '?' {
				t.Fatalf("%q", c.Subject)
			}
		}
	})
}

func TestErrorsKeepTheKey(t *testing.T) {
	r := newRig(t)
	text := read(t, r.file())
	write(t, r.file(), text[:len(text)/2])
	r.open()
	err := r.i.Ready(task.InputInvalid, "")
	if err == nil || strings.Contains(err.Error(), text[200:260]) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
