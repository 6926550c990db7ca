package sigv4

import (
	"encoding/json"
	"net/textproto"
	"os"
	"testing"
	"time"
)

// vector is one request that a signer of AWS's signed with both keys.
type vector struct {
	Name, Service, Region   string
	InsideKeys, OutsideKeys [3]string
	Inside, Outside         struct {
		Method, Host, Path, Query, Body string
		Header                          [][2]string
	}
}

func (v vector) message(t *testing.T) (inside, outside Message) {
	t.Helper()
	var out [2]Message
	for i, one := range []struct {
		Method, Host, Path, Query, Body string
		Header                          [][2]string
	}{v.Inside, v.Outside} {
		out[i] = Message{Method: one.Method, Host: one.Host, Path: one.Path, Query: one.Query, Length: int64(len(one.Body)), Header: map[string][]string{}}
		for _, h := range one.Header {
			name := textproto.CanonicalMIMEHeaderKey(h[0])
			out[i].Header[name] = append(out[i].Header[name], h[1])
		}
	}
	return out[0], out[1]
}

func vectors(t testing.TB, name string) (list []vector, now time.Time) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Now   string
		Cases []vector
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if now, err = time.Parse(stampForm, file.Now); err != nil || len(file.Cases) < 20 {
		t.Fatalf("%d vectors, %v", len(file.Cases), err)
	}
	return file.Cases, now
}

// What AWS's own signers sign with the keys inside becomes what they sign with
// the real ones, to the byte.
func TestSigners(t *testing.T) {
	for _, name := range []string{"botocore", "awssdkgo"} {
		t.Run(name, func(t *testing.T) { signsAsWell(t, name) })
	}
}

func signsAsWell(t *testing.T, name string) {
	list, now := vectors(t, name)
	for _, v := range list {
		in, want := v.message(t)
		c, err := Parse(in)
		if err == nil {
			err = c.Allow(v.InsideKeys[0], v.InsideKeys[2], Bounds{[]string{v.Region}, []string{v.Service}}, now)
		}
		if err == nil {
			err = c.Verify(in, v.InsideKeys[1], Digest([]byte(v.Inside.Body)))
		}
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		got, err := c.Sign(in, v.OutsideKeys[0], v.OutsideKeys[1], v.OutsideKeys[2], Digest([]byte(v.Inside.Body)), now)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		one := func(name string) string {
			if values := want.Header[name]; len(values) > 0 {
				return values[0]
			}
			return ""
		}
		if got.Authorization != one("Authorization") || got.Token != one("X-Amz-Security-Token") {
			t.Errorf("%s:\n%s %s\nwant\n%s", v.Name, got.Authorization, got.Token, one("Authorization"))
		}
		if same := canonicalQueryOf(t, got.Query) == canonicalQueryOf(t, want.Query); !same || name == "botocore" && got.Query != want.Query {
			t.Errorf("%s:\n%s\nwant\n%s", v.Name, got.Query, want.Query)
		}
	}
}

// canonicalQueryOf leaves out in which order parameters stand: the SDK for Go
// sorts them.
func canonicalQueryOf(t *testing.T, query string) string {
	t.Helper()
	params, err := parseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	for i := range params {
		params[i].name += " " // the signature too
	}
	return canonicalQuery(params, queryEncoded)
}
