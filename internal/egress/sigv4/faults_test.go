package sigv4

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const (
	standID     = "AKIAPLACEHOLDERABCDE"
	standSecret = "placeholderabcdefghijklmnopqrst" // stands for one
	standToken  = "placeholder-of-a-token"
	realID      = "AKIAIOSFODNN7EXAMPLE"
	realSecret  = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" // the one of the examples
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	bounds = Bounds{[]string{"us-east-1", "eu-central-1"}, []string{"s3", "sts"}}
)

// client signs as clients do: every header there is, as the claim says.
type client struct {
	id, secret, token       string
	day, region, service    string
	when                    time.Time
	presigned               bool
	expires                 time.Duration
	method, host, path      string
	query, payload, trailer string
	header                  map[string]string
	unsigned                []string
	length                  int64
}

func newClient() client {
	return client{
		id: standID, secret: standSecret, day: "20260301", region: "us-east-1", service: "s3", when: noon, expires: time.Minute,
		method: "PUT", host: "bucket.s3.test", path: "/key", payload: unsigned, header: map[string]string{"X-Amz-Acl": "private", "Content-Type": "text/plain"}, length: 10,
	}
}

func (k client) message() Message {
	m := Message{Method: k.method, Host: k.host, Path: k.path, Query: k.query, Length: k.length, Header: map[string][]string{}}
	for name, value := range k.header {
		m.Header[name] = []string{value}
	}
	c := &Claim{presigned: k.presigned, scope: scope{k.day, k.region, k.service}, when: k.when, stamp: k.when.Format(stampForm), expires: k.expires, payload: k.payload}
	if k.payload != "" && !k.presigned {
		m.Header["X-Amz-Content-Sha256"] = []string{k.payload}
	}
	if !k.presigned {
		m.Header["X-Amz-Date"] = []string{c.stamp}
		if k.token != "" {
			m.Header["X-Amz-Security-Token"] = []string{k.token}
		}
	}
	c.headers = []string{"host"}
	for name := range m.Header {
		if lower := strings.ToLower(name); !slices.Contains(k.unsigned, lower) {
			c.headers = append(c.headers, lower)
		}
	}
	if slices.Contains(k.unsigned, "host") {
		c.headers = c.headers[1:]
	}
	slices.Sort(c.headers)
	if k.presigned {
		m.Query = presign(k.query, k.id+"/"+c.scope.String(), c.stamp, int64(k.expires/time.Second), c.headers, k.token)
	}
	params, _ := parseQuery(m.Query)
	signature := sign(signingKey(k.secret, c.scope), c.stamp, c.scope, c.canonical(m, params, c.headers, k.payload, spelling{pathSent, queryEncoded}))
	if k.presigned {
		m.Query += "&X-Amz-Signature=" + signature
	} else {
		m.Header["Authorization"] = []string{algorithm + " Credential=" + k.id + "/" + c.scope.String() + ", SignedHeaders=" + strings.Join(c.headers, ";") + ", Signature=" + signature}
	}
	return m
}

func judge(m Message, token string, now time.Time) (*Claim, error) {
	c, err := Parse(m)
	if err == nil {
		err = c.Allow(standID, token, bounds, now)
	}
	if err == nil {
		err = c.Verify(m, standSecret, "")
	}
	return c, err
}

func TestFaults(t *testing.T) {
	header := func(name, value string) func(*Message) {
		return func(m *Message) { m.Header[name] = []string{value} }
	}
	type fault struct {
		sign  func(*client)
		alter func(*Message)
		now   time.Duration
		want  string // empty: it passes
	}
	authorization := func(from, to string) func(*Message) {
		return func(m *Message) {
			m.Header["Authorization"] = []string{strings.Replace(m.Header["Authorization"][0], from, to, 1)}
		}
	}
	for name, f := range map[string]fault{
		"as it should be":                {},
		"presigned":                      {sign: func(k *client) { k.presigned, k.header = true, nil }},
		"presigned, another order":       {sign: func(k *client) { k.presigned, k.header, k.query = true, nil, "z=1&a=2" }},
		"with the token that stands":     {sign: func(k *client) { k.token = standToken }},
		"presigned with the token":       {sign: func(k *client) { k.presigned, k.header, k.token = true, nil, standToken }},
		"a header that need not be":      {sign: func(k *client) { k.unsigned = []string{"content-type"} }},
		"a clock 5 minutes behind":       {now: 5 * time.Minute},
		"a clock 5 minutes ahead":        {now: -5 * time.Minute},
		"a clock 15 minutes ahead":       {now: -15 * time.Minute},
		"wrong region":                   {sign: func(k *client) { k.region = "us-west-2" }, want: `not lent for the region "us-west-2"`},
		"wrong service":                  {sign: func(k *client) { k.service = "iam" }, want: `not lent for the service "iam"`},
		"wrong host":                     {alter: func(m *Message) { m.Host = "other.s3.test" }, want: "signature is not"},
		"wrong port":                     {alter: func(m *Message) { m.Host += ":444" }, want: "signature is not"},
		"wrong method":                   {alter: func(m *Message) { m.Method = "DELETE" }, want: "signature is not"},
		"wrong path":                     {alter: func(m *Message) { m.Path = "/other" }, want: "signature is not"},
		"wrong query":                    {alter: func(m *Message) { m.Query = "acl" }, want: "signature is not"},
		"altered header":                 {alter: header("Content-Type", "text/html"), want: "signature is not"},
		"altered x-amz header":           {alter: header("X-Amz-Acl", "public-read"), want: "signature is not"},
		"header added":                   {alter: header("X-Amz-Meta-Note", "n"), want: "x-amz-meta-note is not signed"},
		"header added, underscores":      {alter: header("X_amz_acl", "public-read"), want: "x_amz_acl is not signed"},
		"header taken off":               {alter: func(m *Message) { delete(m.Header, "Content-Type") }, want: "content-type is signed, but"},
		"x-amz header that isn't signed": {sign: func(k *client) { k.unsigned = []string{"x-amz-acl"} }, want: "x-amz-acl is not signed"},
		"host that isn't signed":         {sign: func(k *client) { k.unsigned = []string{"host"} }, want: "host is not signed"},
		"altered digest":                 {alter: header("X-Amz-Content-Sha256", emptyDigest), want: "signature is not"},
		"expired":                        {now: 16 * time.Minute, want: "too long ago; it is 20260301T121600Z now"},
		"of a time to come":              {now: -16 * time.Minute, want: "time to come"},
		"presigned, expired":             {sign: func(k *client) { k.presigned, k.header = true, nil }, now: 61 * time.Second, want: "has expired"},
		"presigned, of a time to come":   {sign: func(k *client) { k.presigned, k.header = true, nil }, now: -16 * time.Minute, want: "time to come"},
		"presigned for ever":             {sign: func(k *client) { k.presigned, k.header, k.expires = true, nil, 8*24*time.Hour }, want: "X-Amz-Expires must be"},
		"another day in the scope":       {sign: func(k *client) { k.day = "20260228" }, want: "day is not"},
		"another access key id":          {sign: func(k *client) { k.id = "AKIAIOSFODNN7MYOWN00" }, want: "another access key"},
		"another secret":                 {sign: func(k *client) { k.secret = "mine" }, want: "signature is not"},
		"replaced token":                 {sign: func(k *client) { k.token = "mine" }, want: "session token is not"},
		"token replaced afterwards":      {sign: func(k *client) { k.token = standToken }, alter: header("X-Amz-Security-Token", "mine"), want: "session token is not"},
		"presigned with a token beside": {
			sign: func(k *client) { k.presigned, k.header = true, nil }, alter: header("X-Amz-Security-Token", standToken),
			want: "stands in its query",
		},
		"not signed":      {alter: func(m *Message) { delete(m.Header, "Authorization") }, want: "is not signed"},
		"an empty header": {alter: header("Authorization", ""), want: "not signed with"},
		"bearer":          {alter: header("Authorization", "Bearer "+standSecret), want: "not signed with"},
		"SigV2":           {alter: header("Authorization", "AWS "+standID+":c2ln"), want: "Signature Version 2"},
		"SigV2, presigned": {alter: func(m *Message) {
			delete(m.Header, "Authorization")
			m.Query = "AWSAccessKeyId=" + standID + "&Signature=x&Expires=1"
		}, want: "Signature Version 2"},
		"SigV4a": {alter: authorization(algorithm, "AWS4-ECDSA-P256-SHA256"), want: "Signature Version 4a"},
		"SigV4a, presigned": {
			sign:  func(k *client) { k.presigned, k.header = true, nil },
			alter: func(m *Message) { m.Query = strings.Replace(m.Query, algorithm, "AWS4-ECDSA-P256-SHA256", 1) }, want: "Signature Version 4a",
		},
		"SigV4a, chunks":    {sign: func(k *client) { k.payload = "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" }, want: "Signature Version 4a"},
		"an event stream":   {sign: func(k *client) { k.payload = "STREAMING-AWS4-HMAC-SHA256-EVENTS" }, want: "EVENTS is not signed anew"},
		"an unknown digest": {sign: func(k *client) { k.payload = "none" }, want: "neither a digest"},
		"signed twice":      {alter: func(m *Message) { m.Header["Authorization"] = append(m.Header["Authorization"], "x") }, want: "signed twice"},
		"in both places":    {alter: func(m *Message) { m.Query = "X-Amz-Signature=" + emptyDigest }, want: "signed twice"},
		"in both places, another case": {
			alter: func(m *Message) { m.Query = "x-amz-date=20260301T120000Z" },
			want:  "signed twice",
		},
		"presigned, a parameter twice": {
			sign:  func(k *client) { k.presigned, k.header = true, nil },
			alter: func(m *Message) { m.Query += "&X-Amz-Date=20260301T120000Z" }, want: "X-Amz-Date stands twice",
		},
		"presigned, another case": {
			sign:  func(k *client) { k.presigned, k.header = true, nil },
			alter: func(m *Message) { m.Query += "&x-amz-date=20260301T120000Z" }, want: "not spelled as usual",
		},
		"presigned chunks": {sign: func(k *client) {
			k.presigned, k.header = true, map[string]string{"X-Amz-Content-Sha256": chunkedSigned}
		}, want: "carries no chunks"},
		"two dates":       {alter: func(m *Message) { m.Header["X-Amz-Date"] = []string{"20260301T120000Z", "20260301T120000Z"} }, want: "one X-Amz-Date"},
		"a date of words": {alter: header("X-Amz-Date", "yesterday"), want: "no time"},
		"two digests":     {alter: func(m *Message) { m.Header["X-Amz-Content-Sha256"] = []string{emptyDigest, emptyDigest} }, want: "stands twice"},
		"a digest in the query": {
			alter: func(m *Message) { m.Query = "X-Amz-Content-Sha256=" + emptyDigest },
			want:  "belongs in the header",
		},
		"a part twice":      {alter: authorization("Signature=", "Signature="+emptyDigest+", Signature="), want: "can't be read"},
		"a part too many":   {alter: authorization("Signature=", "More=1, Signature="), want: "nothing else"},
		"a short signature": {alter: authorization("Signature=", "Signature=00"), want: "64 digits"},
		"a signature in capital letters": {alter: func(m *Message) {
			auth := m.Header["Authorization"][0]
			m.Header["Authorization"] = []string{auth[:len(auth)-64] + strings.ToUpper(emptyDigest)}
		}, want: "64 digits"},
		"an unsorted list":     {alter: authorization("content-type;host", "host;content-type"), want: "sorted"},
		"a list in capitals":   {alter: authorization("content-type;", "Content-Type;"), want: "lower case"},
		"a scope too long":     {alter: authorization("/s3/", "/s3/x/"), want: "ID/DAY/REGION"},
		"an empty region":      {alter: authorization("/us-east-1/", "//"), want: "ID/DAY/REGION"},
		"a query half escaped": {alter: func(m *Message) { m.Query = "a=%zz" }, want: "not escaped"},
	} {
		k := newClient()
		if f.sign != nil {
			f.sign(&k)
		}
		m := k.message()
		if f.alter != nil {
			f.alter(&m)
		}
		_, err := judge(m, standToken, noon.Add(f.now))
		if f.want == "" && err != nil || f.want != "" && (err == nil || !strings.Contains(err.Error(), f.want)) {
			t.Errorf("%s: %v, want %q", name, err, f.want)
		}
		if refusal, ok := errors.AsType[*Refusal](err); err != nil && (!ok || strings.Contains(refusal.Error(), standSecret)) {
			t.Errorf("%s: %#v", name, err)
		}
	}
	k := newClient()
	k.token = standToken
	if _, err := judge(k.message(), "", noon); err == nil {
		t.Error("a token passes where none stands for one")
	}
}

// A presigned URL goes out for a quarter of an hour at most, dated now.
func TestPresignedIsShortOutside(t *testing.T) {
	for _, x := range []struct {
		expires time.Duration
		later   time.Duration
		want    string
	}{{time.Hour, time.Minute, "X-Amz-Expires=900&"}, {time.Minute, 40 * time.Second, "X-Amz-Expires=20&"}, {time.Minute, time.Minute, "X-Amz-Expires=1&"}} {
		k := newClient()
		k.presigned, k.header, k.expires = true, nil, x.expires
		m, now := k.message(), noon.Add(x.later)
		c, err := judge(m, "", now)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Sign(m, realID, realSecret, "", "", now)
		if err != nil || out.Authorization != "" || !strings.Contains(out.Query, x.want) || !strings.Contains(out.Query, "X-Amz-Date="+now.Format(stampForm)) ||
			!strings.Contains(out.Query, realID) || strings.Contains(out.Query, "PLACEHOLDER") {
			t.Errorf("%s later: %s, %v", x.later, out.Query, err)
		}
	}
}

// What a transport does not send, or sends otherwise, is not signed.
func TestSignsWhatIsSent(t *testing.T) {
	k := newClient()
	k.header = map[string]string{"Connection": "keep-alive", "Expect": "100-continue", "Te": "trailers", "Content-Length": "10", "User-Agent": "x", "X-Gone": "1", "X-Amz-Acl": "private"}
	m := k.message()
	c, err := judge(m, "", noon)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(change func(*Message)) string {
		out := m
		out.Header = map[string][]string{}
		for name, values := range m.Header {
			out.Header[name] = values
		}
		delete(out.Header, "X-Gone")
		change(&out)
		got, err := c.Sign(out, realID, realSecret, "", "", noon)
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(got.Authorization, "SignedHeaders=")
		list, _, _ = strings.Cut(list, ",")
		return list
	}
	for want, change := range map[string]func(*Message){
		"content-length;host;user-agent;x-amz-acl;x-amz-content-sha256;x-amz-date": func(*Message) {},
		"host;user-agent;x-amz-acl;x-amz-content-sha256;x-amz-date":                func(m *Message) { m.Length = -1 },
		"content-length;host;x-amz-acl;x-amz-content-sha256;x-amz-date":            func(m *Message) { m.Header["User-Agent"] = []string{"a", "b"} },
		"host;x-amz-acl;x-amz-content-sha256;x-amz-date": func(m *Message) {
			m.Method, m.Length = "GET", 0
			delete(m.Header, "User-Agent")
		},
	} {
		if got := signed(change); got != want {
			t.Errorf("signed %s, want %s", got, want)
		}
	}
}

// frames makes a body of chunks as clients do.
func frames(k client, parts []string, trailers string) (Message, string) {
	m := k.message()
	c, err := Parse(m)
	if err != nil {
		panic(err)
	}
	s := &seal{key: signingKey(k.secret, c.scope), scope: c.scope.String(), stamp: c.stamp, last: c.signature}
	var b strings.Builder
	for _, p := range append(slices.Clone(parts), "") {
		if k.payload == unsignedTrailer {
			fmt.Fprintf(&b, "%x\r\n", len(p))
		} else {
			fmt.Fprintf(&b, "%x;chunk-signature=%s\r\n", len(p), s.chunk(Digest([]byte(p))))
		}
		if p != "" {
			b.WriteString(p + "\r\n")
		}
	}
	b.WriteString(trailers)
	if k.payload == chunkedTrailer {
		b.WriteString(trailerSignature + ":" + s.trailer(Digest([]byte(strings.ReplaceAll(trailers, "\r\n", "\n")))) + "\r\n")
	}
	return m, b.String() + "\r\n"
}

func chunked(payload string, decoded int) client {
	k := newClient()
	k.payload = payload
	k.header = map[string]string{"Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": fmt.Sprint(decoded)}
	if payload != chunkedSigned {
		k.header["X-Amz-Trailer"] = "x-amz-checksum-crc32"
	}
	k.length = 1 << 20
	return k
}

func TestBodyFaults(t *testing.T) {
	parts := []string{strings.Repeat("a", 70_000), "bb", "c"}
	swap := func(from, to string) func(string) string {
		return func(s string) string { return strings.Replace(s, from, to, 1) }
	}
	for payload, faults := range map[string]map[string]func(string) string{
		"": {
			"altered data":       swap("bb", "bx"),
			"longer chunk":       swap("bb", "bbb"),
			"shorter chunk":      swap("bb", "b"),
			"another size":       swap("\r\n2", "\r\n3"),
			"a size of words":    swap("\r\n2", "\r\nzz"),
			"a negative size":    swap("\r\n2", "\r\n-2"),
			"a huge size":        swap("\r\n2", "\r\n7fffffffffff"),
			"a size too long":    swap("\r\n2", "\r\n00000000000000000002"),
			"bare line feeds":    func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") },
			"a last chunk early": swap("\r\n2", "\r\n0\r\n\r\n2"),
			"more behind":        func(s string) string { return s + "x" },
			"nothing":            func(string) string { return "" },
			"cut in data":        func(s string) string { return s[:1000] },
			"cut in a line":      func(s string) string { return s[:3] },
			"cut before the end": func(s string) string { return s[:len(s)-1] },
			"cut last chunk":     func(s string) string { return s[:strings.LastIndex(s, "\r\n0")+2] },
			"a line for ever":    func(string) string { return strings.Repeat("0", 1<<20) },
		},
		chunkedSigned: {
			"altered signature": swap("2;chunk-signature=", "2;chunk-signature=0"),
			"no signature":      func(s string) string { i := strings.Index(s, ";"); return s[:i] + s[i+81:] },
			"another word":      swap("chunk-signature", "chunk-sig"),
			"chunks swapped": func(s string) string {
				i, j, k := strings.Index(s, "\r\n2;")+2, strings.Index(s, "\r\n1;")+2, strings.LastIndex(s, "\r\n0;")+2
				return s[:i] + s[j:k] + s[i:j] + s[k:]
			},
			"a chunk twice": func(s string) string {
				i, j := strings.Index(s, "\r\n2;")+2, strings.Index(s, "\r\n1;")+2
				return s[:j] + s[i:j] + s[j:]
			},
			"a trailer": func(s string) string { return s[:len(s)-2] + "x-amz-checksum-crc32:AAAA\r\n\r\n" },
		},
		chunkedTrailer: {
			"altered trailer":    swap("AAAAAA==", "AAAAAB=="),
			"another trailer":    swap("x-amz-checksum-crc32:", "x-amz-checksum-crc64:"),
			"no signature":       func(s string) string { return s[:strings.Index(s, trailerSignature)] + "\r\n" },
			"altered signature":  swap(trailerSignature+":", trailerSignature+":0"),
			"behind a signature": func(s string) string { return s[:len(s)-2] + "x-amz-checksum-crc32:AAAA\r\n\r\n" },
		},
		unsignedTrailer: {
			"another trailer":   swap("x-amz-checksum-crc32:", "x-amz-acl:"),
			"a trailer twice":   swap("x-amz-checksum-crc32:AAAAAA==\r\n", "x-amz-checksum-crc32:AAAAAA==\r\nx-amz-checksum-crc32:AAAAAA==\r\n"),
			"a signature":       swap("2\r\n", "2;chunk-signature="+emptyDigest+"\r\n"),
			"a control byte":    swap("AAAAAA==", "A\x00AAA=="),
			"a trailer unended": func(s string) string { return s[:len(s)-4] },
		},
	} {
		kinds := []string{payload}
		if payload == "" {
			kinds = []string{chunkedSigned, chunkedTrailer, unsignedTrailer}
		}
		for _, kind := range kinds {
			trailers := ""
			if kind != chunkedSigned {
				trailers = "x-amz-checksum-crc32:AAAAAA==\r\n"
			}
			m, body := frames(chunked(kind, 70_003), parts, trailers)
			faults["none"] = func(s string) string { return s }
			for name, fault := range faults {
				c, err := judge(m, "", noon)
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				out, err := c.Sign(m, realID, realSecret, "", "", noon)
				if err != nil {
					t.Fatal(err)
				}
				altered := fault(body)
				if name != "none" && altered == body && !(kind == unsignedTrailer && strings.HasPrefix(name, "altered")) {
					t.Fatalf("%s, %s: nothing was altered", kind, name)
				}
				r, err := c.Body(m, iotest.HalfReader(strings.NewReader(altered)), out, standSecret, realSecret)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if name == "none" || kind == unsignedTrailer && name == "altered data" {
					if err != nil || len(got) != len(body) || kind != unsignedTrailer && string(got) == body {
						t.Errorf("%s, %s: %d bytes of %d, %v", kind, name, len(got), len(body), err)
					}
					continue
				}
				if _, ok := errors.AsType[*Refusal](err); !ok {
					t.Errorf("%s, %s: %v", kind, name, err)
				}
				if strings.Contains(string(got), "\r\n0") {
					t.Errorf("%s, %s: the last chunk passed", kind, name)
				}
			}
		}
	}
}

// A chunk that can't be verified yet is not held beyond a bound, and a body is
// never held whole.
func TestChunkIsBounded(t *testing.T) {
	k := chunked(chunkedSigned, 2<<20)
	k.length = 3 << 20
	m, body := frames(k, []string{strings.Repeat("a", 2<<20)}, "")
	c, err := judge(m, "", noon)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Body(m, strings.NewReader(body), Signed{}, standSecret, realSecret)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if b := r.(*chunks); cap(b.buf) > maxLine {
		t.Errorf("%d bytes held", cap(b.buf))
	}
}

func TestDeclaredOfChunks(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*client)
		want   string
	}{
		"no length":          {func(k *client) { delete(k.header, "X-Amz-Decoded-Content-Length") }, "must have one"},
		"a negative length":  {func(k *client) { k.header["X-Amz-Decoded-Content-Length"] = "-1" }, "no length"},
		"a length of words":  {func(k *client) { k.header["X-Amz-Decoded-Content-Length"] = "1e3" }, "no length"},
		"longer than all":    {func(k *client) { k.length = 9 }, "no length"},
		"a key as a trailer": {func(k *client) { k.header["X-Amz-Trailer"] = "authorization" }, "must name checksums"},
		"a trailer twice":    {func(k *client) { k.header["X-Amz-Trailer"] = "x-amz-checksum-crc32, x-amz-checksum-crc32" }, "must name checksums"},
		"an empty name":      {func(k *client) { k.header["X-Amz-Trailer"] = "x-amz-checksum-crc32," }, "must name checksums"},
		"too many": {func(k *client) {
			k.header["X-Amz-Trailer"] = "x-amz-meta-1,x-amz-meta-2,x-amz-meta-3,x-amz-meta-4,x-amz-meta-5,x-amz-meta-6,x-amz-meta-7,x-amz-meta-8,x-amz-meta-9"
		}, "more than"},
		"without their word":  {func(k *client) { k.payload = chunkedSigned }, "needs STREAMING"},
		"as it should be":     {func(*client) {}, ""},
		"several, and spaces": {func(k *client) { k.header["X-Amz-Trailer"] = "x-amz-checksum-crc32, x-amz-meta-a" }, ""},
	} {
		k := chunked(chunkedTrailer, 9)
		x.change(&k)
		_, err := judge(k.message(), "", noon)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}
