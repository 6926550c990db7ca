package postgres

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The exchange of RFC 7677 §3.
func TestScramOfTheStandard(t *testing.T) {
	const first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	a := &asking{nonce: "rOprNGfwEbeRWgbNEkqO", bare: "n=user,r=rOprNGfwEbeRWgbNEkqO"}
	got, err := a.answer([]byte(first), "pencil")
	const want = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	if err != nil || string(got) != want {
		t.Fatalf("%s, %v", got, err)
	}
	const proof = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
	if err := a.verify([]byte(proof)); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"", "v=", "e=other-error", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", proof + "A", proof + ",x=y", strings.ToUpper(proof)} {
		if err := a.verify([]byte(wrong)); err == nil {
			t.Errorf("%q proves a server", wrong)
		}
	}
	if err := (&asking{}).verify([]byte("v=")); err == nil {
		t.Error("an exchange that did not begin is proved")
	}
}

// exchange has both sides of ours speak with one another.
func exchange(password string, binding, theirs []byte, change func(step int, message string) string) error {
	v, err := NewVerifier("the password")
	if err != nil {
		return err
	}
	s := &serving{verifier: v, binding: binding, random: rand.Reader}
	a := &asking{binding: theirs, random: rand.Reader}
	m, err := a.begin()
	if err != nil {
		return err
	}
	if m, err = s.begin(a.mechanism(), []byte(change(1, string(m)))); err != nil {
		return fmt.Errorf("first: %w", err)
	}
	if m, err = a.answer([]byte(change(2, string(m))), password); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if m, err = s.finish([]byte(change(3, string(m)))); err != nil {
		return fmt.Errorf("last: %w", err)
	}
	return a.verify([]byte(change(4, string(m))))
}

func TestScram(t *testing.T) {
	same := func(_ int, m string) string { return m }
	hash := bytes.Repeat([]byte{7}, 32)
	for _, binding := range [][]byte{nil, hash} {
		if err := exchange("the password", hash, binding, same); err != nil {
			t.Errorf("%v: %v", binding, err)
		}
		if err := exchange("another password", hash, binding, same); !errors.Is(err, errPassword) {
			t.Errorf("another password: %v", err)
		}
	}
	if err := exchange("the password", hash, bytes.Repeat([]byte{8}, 32), same); !errors.Is(err, errBinding) {
		t.Errorf("another certificate: %v", err)
	}
	swap := func(at int, old, replacement string) func(int, string) string {
		return func(step int, m string) string {
			if step != at {
				return m
			}
			if !strings.Contains(m, old) {
				t.Errorf("step %d has no %q: %s", at, old, m)
			}
			return strings.Replace(m, old, replacement, 1)
		}
	}
	for name, c := range map[string]struct {
		change func(int, string) string
		want   error
	}{
		"binding that was taken away":   {swap(1, "n,,", "y,,"), errBinding},
		"binding without its mechanism": {swap(1, "n,,", "p=tls-server-end-point,,"), errScram},
		"another identity":              {swap(1, "n,,", "n,a=root,"), errScram},
		"an extension":                  {swap(1, "n=,", "m=x,n=,"), errScram},
		"a second field":                {swap(1, ",r=", ",x=y,r="), errScram},
		"no nonce":                      {func(s int, m string) string { return strings.Split(m, ",r=")[0] + ",r=" }, errScram},
		"the server's extension":        {swap(2, "r=", "m=x,r="), errScram},
		"another nonce":                 {swap(2, "r=", "r=x"), errScram},
		"few iterations":                {swap(2, "i=4096", "i=1"), errScram},
		"too many":                      {swap(2, "i=4096", "i=2000000000"), errScram},
		"not a number":                  {swap(2, "i=4096", "i=+4096"), errScram},
		"no salt": {func(s int, m string) string {
			before, after, _ := strings.Cut(m, ",s=")
			_, after, ok := strings.Cut(after, ",")
			if !ok || s != 2 {
				return m
			}
			return before + ",s=," + after
		}, errScram},
		"the header":     {swap(3, "c=biws", "c=eSws"), errBinding},
		"the last nonce": {swap(3, ",r=", ",r=x"), errScram},
		"no proof":       {swap(3, ",p=", ",q="), errScram},
		"a short proof": {func(s int, m string) string {
			if s != 3 {
				return m
			}
			return m[:strings.Index(m, ",p=")] + ",p=AAAA"
		}, errScram},
		"zeros for a proof": {func(s int, m string) string {
			if s != 3 {
				return m
			}
			return m[:strings.Index(m, ",p=")] + ",p=" + base64.StdEncoding.EncodeToString(make([]byte, 32))
		}, errPassword},
		"the server's proof": {swap(4, "v=", "v=A"), errPassword},
		"an error": {func(s int, m string) string {
			if s != 4 {
				return m
			}
			return "e=invalid-proof"
		}, errScram},
	} {
		if err := exchange("the password", hash, nil, c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzScram gives both sides anything: nothing is proved to either.
func FuzzScram(f *testing.F) {
	v, err := NewVerifier("the password")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("SCRAM-SHA-256", []byte("n,,n=,r=abc"), []byte("c=biws,r=abc,p=AAAA"), []byte("r=AQ==x,s=AAAA,i=4096"))
	f.Add("SCRAM-SHA-256-PLUS", []byte("p=tls-server-end-point,,n=,r=abc"), []byte("c=,r=,p="), []byte("r=,s=,i="))
	f.Add("", []byte("y,,"), []byte("v=AAAA"), []byte("e=x"))
	f.Fuzz(func(t *testing.T, mechanism string, first, last, server []byte) {
		s := &serving{verifier: v, binding: make([]byte, 32), random: bytes.NewReader(make([]byte, nonceSize))}
		if _, err := s.begin(mechanism, first); err == nil {
			if _, err := s.finish(last); err == nil {
				t.Fatal("proved")
			}
			if _, err := s.finish([]byte("c=" + base64.StdEncoding.EncodeToString([]byte(s.header)) + ",r=" + s.nonce + ",p=" + string(last))); err == nil {
				t.Fatal("proved")
			}
		}
		a := &asking{random: bytes.NewReader(make([]byte, nonceSize))}
		if _, err := a.begin(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(server, []byte("i=4096")) {
			server = append(server, ",s=AAAA,i=4096"...)
		}
		_, _ = a.answer(server, "the password")
		if a.verify(last) == nil {
			t.Fatal("proved")
		}
	})
}
