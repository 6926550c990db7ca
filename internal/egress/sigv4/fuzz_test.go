package sigv4

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzSigV4 gives hostile bytes to the reader of claims: what it takes can be
// signed anew, and what was signed anew is read again and verified.
func FuzzSigV4(f *testing.F) {
	list, _ := vectors(f, "botocore")
	for _, v := range list {
		auth, content := "", ""
		for _, h := range v.Inside.Header {
			switch h[0] {
			case "Authorization":
				auth = h[1]
			case "X-Amz-Content-SHA256":
				content = h[1]
			}
		}
		f.Add(v.Inside.Method, v.Inside.Path, v.Inside.Query, auth, "20260301T120000Z", content, "")
	}
	f.Add("GET", "/%zz", "a=%&;=", "AWS4-HMAC-SHA256 Credential=,,=", "", chunkedTrailer, "x-amz-checksum-crc32")
	f.Fuzz(func(t *testing.T, method, path, query, auth, date, content, trailer string) {
		m := Message{Method: method, Host: "bucket.s3.test", Path: path, Query: query, Length: 100, Header: map[string][]string{}}
		for name, value := range map[string]string{"Authorization": auth, "X-Amz-Date": date, "X-Amz-Content-Sha256": content, "X-Amz-Trailer": trailer} {
			if value != "" {
				m.Header[name] = []string{value}
			}
		}
		c, err := Parse(m)
		if err != nil {
			if _, ok := errors.AsType[*Refusal](err); !ok {
				t.Fatalf("%#v", err)
			}
			return
		}
		_ = c.Verify(m, standSecret, emptyDigest)
		out, err := c.Sign(m, realID, realSecret, "", emptyDigest, c.when)
		if err != nil {
			t.Fatalf("what was read is not signed: %v", err)
		}
		again := m
		again.Query = out.Query
		if out.Authorization != "" {
			again.Header["Authorization"] = []string{out.Authorization}
		}
		second, err := Parse(again)
		if err == nil {
			err = second.Verify(again, realSecret, emptyDigest)
		}
		if err != nil || second.id != realID {
			t.Fatalf("what was signed anew is refused: %v", err)
		}
	})
}

// FuzzChunks gives hostile bytes to the reader of chunks: what passes as a whole
// body is one whose every chunk was signed, and comes out as long as it came.
func FuzzChunks(f *testing.F) {
	parts := []string{"aaaaaaaa", "bb"}
	for i, kind := range []string{chunkedSigned, chunkedTrailer, unsignedTrailer} {
		trailers := ""
		if kind != chunkedSigned {
			trailers = "x-amz-checksum-crc32:AAAAAA==\r\n"
		}
		_, body := frames(chunked(kind, 10), parts, trailers)
		f.Add(uint8(i), []byte(body))
		f.Add(uint8(i), []byte(strings.Replace(body, "bb", "bc", 1)))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		kind := []string{chunkedSigned, chunkedTrailer, unsignedTrailer}[which%3]
		m := chunked(kind, 10).message()
		c, err := judge(m, "", noon)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Sign(m, realID, realSecret, "", "", noon)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Body(m, iotest.HalfReader(bytes.NewReader(text)), out, standSecret, realSecret)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			if _, ok := errors.AsType[*Refusal](err); !ok {
				t.Fatalf("%#v", err)
			}
			return
		}
		if len(got) != len(text) {
			t.Fatalf("%d bytes from %d", len(got), len(text))
		}
		// A far side that has the real keys takes it.
		far, err := c.Body(m, bytes.NewReader(got), out, realSecret, realSecret)
		if err != nil {
			t.Fatal(err)
		}
		far.(*chunks).last(out.signature)
		if _, err := io.Copy(io.Discard, far); err != nil {
			t.Fatalf("what passed is refused outside: %v", err)
		}
	})
}

// last has chunks follow another signature.
func (c *chunks) last(signature string) {
	if c.in != nil {
		c.in.last = signature
	}
}
