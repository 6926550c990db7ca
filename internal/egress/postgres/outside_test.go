package postgres

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const realPassword = "correct horse battery staple"

// played is a server that says what was written down and hears anything.
type played struct {
	io.Reader
	heard bytes.Buffer
}

func (p *played) Write(b []byte) (int, error) { return p.heard.Write(b) }

// counting is random in no way: recorded exchanges are about the nonce that it
// gives.
type counting struct{ n byte }

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		c.n++
		b[i] = c.n
	}
	return len(b), nil
}

// play logs in at a server that says what was written down.
func play(says []byte, certificate *x509.Certificate) (Greeting, string, error) {
	p := &played{Reader: bytes.NewReader(says)}
	asked := false
	l := &login{conn: p, certificate: certificate, random: &counting{}, password: func() (task.Secret, error) {
		asked = true
		return task.NewSecret(realPassword), nil
	}}
	g, err := l.run(Startup{User: "app_ro", Database: "orders"})
	if !asked && strings.Contains(p.heard.String(), ",p=") {
		return g, "", errors.New("something was proved")
	}
	return g, p.heard.String(), err
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What PostgreSQL 15 said, as outside_root_test.go wrote it down.
func TestRecordedServers(t *testing.T) {
	certificate, err := x509.ParseCertificate(recorded(t, "certificate.der"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"bound":     "",
		"unbound":   "",
		"another":   `28P01: the server says: password authentication failed for user "app_ro"`,
		"md5":       "28000: the server asks for an MD5 password",
		"cleartext": "28000: the server asks for a cleartext password",
		"open":      "28000: the server let us in without a proof",
		"database":  `3D000: the server says: database "gone" does not exist`,
		"nobody":    "28000: the server says: no pg_hba.conf entry",
	} {
		cert := certificate
		if name == "unbound" {
			cert = &x509.Certificate{SignatureAlgorithm: x509.PureEd25519}
		}
		g, heard, err := play(recorded(t, name), cert)
		if strings.Contains(heard, realPassword) {
			t.Errorf("%s: the server heard the password", name)
		}
		if want == "" {
			if err != nil || g.Key == nil || len(g.messages) < 10 || g.messages[len(g.messages)-1].kind != 'Z' {
				t.Errorf("%s: %+v, %v", name, g, err)
			}
			if strings.Contains(heard, scramPlus) != (name == "bound") {
				t.Errorf("%s: %q", name, heard)
			}
			// A server that knows no more than what it once saw does not get by.
			changed := bytes.Replace(recorded(t, name), []byte("v="), []byte("v=A"), 1)
			if _, _, err := play(changed, cert); err == nil || !strings.Contains(err.Error(), "does not prove that it knows the password") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var r *Refusal
		if !errors.As(err, &r) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func says(messages ...message) []byte {
	var b []byte
	for _, m := range messages {
		b = m.append(b)
	}
	return b
}

func TestHostileServers(t *testing.T) {
	offer := authentication(authSASL, []byte("SCRAM-SHA-256\x00\x00"))
	own, _ := newNonce(&counting{})
	first := func(text string) message { return authentication(authContinue, []byte(text)) }
	good := first("r=" + own + "x,s=AAAA,i=4096")
	for name, c := range map[string]struct {
		says []byte
		want string
	}{
		"silence":                {nil, "EOF"},
		"HTTP":                   {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "not a message"},
		"a huge message":         {[]byte("R\x7f\xff\xff\xff"), "not a message"},
		"a negative length":      {[]byte("R\x00\x00\x00\x00"), "not a message"},
		"a cut message":          {[]byte("R\x00\x00\x00\x08\x00"), "EOF"},
		"a short request":        {says(message{'R', []byte{0}}), "not a message"},
		"data at once":           {says(message{'D', nil}), "before the login"},
		"negotiation":            {says(message{'v', make([]byte, 8)}), "before the login"},
		"ready at once":          {says(message{'Z', []byte("I")}), "before the login"},
		"notices without end":    {bytes.Repeat(says(message{'N', []byte{0}}), 100), "too many notices"},
		"let in":                 {says(authentication(authOK, nil)), "without a proof"},
		"let in after the offer": {says(offer, authentication(authOK, nil)), "without a proof"},
		"let in after the salt":  {says(offer, good, authentication(authOK, nil)), "without a proof"},
		"another mechanism":      {says(authentication(authSASL, []byte("OAUTHBEARER\x00\x00"))), `the server offers "OAUTHBEARER"`},
		"no mechanism":           {says(authentication(authSASL, []byte("\x00"))), `the server offers ""`},
		"endless mechanisms":     {says(authentication(authSASL, []byte("SCRAM-SHA-256"))), "not a message"},
		"more after them":        {says(authentication(authSASL, []byte("SCRAM-SHA-256\x00\x00x"))), "not a message"},
		"a password after all":   {says(offer, authentication(3, nil)), "a cleartext password"},
		"MD5 after all":          {says(offer, good, authentication(5, make([]byte, 4))), "an MD5 password"},
		"GSS":                    {says(authentication(7, nil)), "GSSAPI"},
		"a number":               {says(authentication(77, nil)), "authentication (77)"},
		"another nonce":          {says(offer, first("r=x,s=AAAA,i=4096")), "can't be taken"},
		"our nonce alone":        {says(offer, first("r="+own+",s=AAAA,i=4096")), "can't be taken"},
		"one iteration":          {says(offer, first("r="+own+"x,s=AAAA,i=1")), "1 iterations; taken are 4096 to 1000000"},
		"many iterations":        {says(offer, first("r="+own+"x,s=AAAA,i=1000000000")), "iterations; taken are"},
		"no proof":               {says(offer, good, authentication(authFinal, []byte("v="))), "does not prove"},
		"its own proof":          {says(offer, good, authentication(authFinal, []byte("v="+base64.StdEncoding.EncodeToString(make([]byte, 32))))), "does not prove"},
		"an error in SCRAM":      {says(offer, good, authentication(authFinal, []byte("e=other-error"))), "can't be taken"},
		"an error":               {says(message{'E', []byte("SFATAL\x00C53300\x00Mtoo\nmany\x1b[2J\x00Dsecret\x00\x00")}), "53300: the server says: too many [2J"},
		"an error without end":   {says(message{'E', []byte("SFATAL")}), "not a message"},
		"an error that repeats":  {says(offer, good, message{'E', []byte("C28P01\x00Mwrong: " + realPassword + "\x00\x00")}), "28P01: the server says: wrong: [sealed]"},
		"a code that is none":    {says(message{'E', []byte("Cab;--\x00Mx\x00\x00")}), "XX000: the server says: x"},
		"a long text":            {says(message{'E', []byte("M" + strings.Repeat("é", 3000) + "\x00\x00")}), "XX000: the server says: " + strings.Repeat("é", 250)},
	} {
		_, heard, err := play(c.says, &x509.Certificate{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(heard, realPassword) || len(err.Error()) > 700 {
			t.Errorf("%s: %q, %v", name, heard, err)
		}
	}
}

// Without a verified server nothing is asked for.
func TestLoginNeedsTLS(t *testing.T) {
	if _, err := Login(tls.Client(nil, &tls.Config{}), Startup{}, nil); err == nil { //nolint:gosec // no connection is made
		t.Error("logged in without TLS")
	}
}

func TestHostileGreetings(t *testing.T) {
	key := message{'K', make([]byte, 8)}
	for name, c := range map[string]struct {
		says []byte
		want string
	}{
		"two keys":         {says(key, key), "the session's key"},
		"a long key":       {says(message{'K', make([]byte, 36)}), "the session's key"},
		"rows":             {says(message{'T', nil}), "before the session is ready"},
		"another question": {says(authentication(3, nil)), "before the session is ready"},
		"no end":           {bytes.Repeat(says(message{'S', make([]byte, 60<<10)}), 40), "more than"},
		"an end":           {says(message{'E', []byte("C57P01\x00Mgoing down\x00\x00")}), "57P01: the server says: going down"},
	} {
		l := &login{conn: &played{Reader: bytes.NewReader(c.says)}}
		if _, err := l.greeting(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g, err := (&login{conn: &played{Reader: bytes.NewReader(says(message{'N', []byte{0}}, message{'Z', []byte("I")}))}}).greeting()
	if err != nil || g.Key != nil || len(g.messages) != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}

// FuzzServer lets a server say anything: it is never let in, and never hears
// the password.
func FuzzServer(f *testing.F) {
	for _, name := range []string{"bound", "unbound", "another", "md5", "open", "database"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		if bytes.Contains(says, []byte("i=1000000")) || bytes.Contains(says, []byte("i=9")) {
			return // slow, and no different
		}
		// The certificate is another than the recorded one.
		_, heard, err := play(says, &x509.Certificate{SignatureAlgorithm: x509.ECDSAWithSHA256})
		if err == nil && !bytes.Contains(says, []byte("v=")) {
			t.Fatal("let in without a proof")
		}
		if strings.Contains(heard, realPassword) {
			t.Fatal("heard")
		}
	})
}
