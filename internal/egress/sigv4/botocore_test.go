package sigv4

import (
	"encoding/json"
	"net/textproto"
	"os"
	"testing"
	"time"
)

// vector is one request that botocore signed with both keys.
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

func vectors(t testing.TB) (list []vector, now time.Time) {
	t.Helper()
	text, err := os.ReadFile("testdata/botocore.json")
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
	if now, err = time.Parse(stampForm, file.Now); err != nil || len(file.Cases) < 30 {
		t.Fatalf("%d vectors, %v", len(file.Cases), err)
	}
	return file.Cases, now
}

// What botocore signs with the keys inside becomes what it signs with the real
// ones, to the byte.
func TestBotocore(t *testing.T) {
	list, now := vectors(t)
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
		if got.Query != want.Query {
			t.Errorf("%s:\n%s\nwant\n%s", v.Name, got.Query, want.Query)
		}
	}
}
