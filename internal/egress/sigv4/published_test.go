package sigv4

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// The signatures in this file were published by AWS: in "Signature Version 4
// examples" of the S3 API reference, in its pages on chunks and on trailers, and
// in the test suite of Signature Version 4.

const (
	s3ID     = "AKIAIOSFODNN7EXAMPLE"
	s3Secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" // the one of the examples
)

type published struct {
	method, path, query string
	header              map[string]string
	signed, signature   string
}

func (p published) message(host, credential string) Message {
	m := Message{Method: p.method, Host: host, Path: p.path, Query: p.query, Header: map[string][]string{}}
	for name, value := range p.header {
		m.Header[name] = strings.Split(value, "\n")
	}
	if p.signed != "" {
		m.Header["Authorization"] = []string{algorithm + " Credential=" + credential + ",SignedHeaders=" + p.signed + ",Signature=" + p.signature}
	}
	return m
}

func TestPublishedOfS3(t *testing.T) {
	const host, credential = "examplebucket.s3.amazonaws.com", s3ID + "/20130524/us-east-1/s3/aws4_request"
	const stamp = "20130524T000000Z"
	now := time.Date(2013, 5, 24, 0, 5, 0, 0, time.UTC)
	for name, p := range map[string]published{
		"get": {
			"GET", "/test.txt", "",
			map[string]string{"Range": "bytes=0-9", "X-Amz-Content-Sha256": emptyDigest, "X-Amz-Date": stamp},
			"host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
		},
		"put": {
			"PUT", "/test%24file.text", "",
			map[string]string{
				"Date": "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Date": stamp, "X-Amz-Storage-Class": "REDUCED_REDUNDANCY",
				"X-Amz-Content-Sha256": "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
			},
			"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		"lifecycle": {
			"GET", "/", "lifecycle",
			map[string]string{"X-Amz-Content-Sha256": emptyDigest, "X-Amz-Date": stamp},
			"host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
		},
		"list": {
			"GET", "/", "max-keys=2&prefix=J",
			map[string]string{"X-Amz-Content-Sha256": emptyDigest, "X-Amz-Date": stamp},
			"host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
		},
		"presigned": {
			"GET", "/test.txt", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&" +
				"X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
			nil, "", "",
		},
	} {
		m := p.message(host, credential)
		c, err := Parse(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.Allow(s3ID, "", Bounds{[]string{"us-east-1"}, []string{"s3"}}, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Verify(m, s3Secret, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPublishedSuite(t *testing.T) {
	const secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" // the one of the suite
	date := map[string]string{"X-Amz-Date": "20150830T123600Z"}
	with := func(name, value string) map[string]string {
		return map[string]string{"X-Amz-Date": date["X-Amz-Date"], name: value}
	}
	for name, p := range map[string]published{
		"get-vanilla":                    {"GET", "/", "", date, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-slash":                      {"GET", "//", "", date, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-relative-relative":          {"GET", "/example1/example2/../..", "", date, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-unreserved":                 {"GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "", date, "host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		"get-vanilla-query-order-key":    {"GET", "/", "Param2=value2&Param1=value1", date, "host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		"get-header-key-duplicate":       {"GET", "/", "", with("My-Header1", "value2\nvalue2\nvalue1"), "host;my-header1;x-amz-date", "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
		"get-header-value-trim":          {"GET", "/", "", map[string]string{"X-Amz-Date": date["X-Amz-Date"], "My-Header1": " value1", "My-Header2": " \"a   b   c\""}, "host;my-header1;my-header2;x-amz-date", "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		"post-vanilla":                   {"POST", "/", "", date, "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"get-vanilla-empty-query-string": {"GET", "/", "&", date, "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	} {
		m := p.message("example.amazonaws.com", "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request")
		c, err := Parse(m)
		if err == nil {
			err = c.Verify(m, secret, emptyDigest)
		}
		if err != nil || !c.Hashes() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Chunks and trailers of AWS's examples, signed anew with the same keys: every
// signature is the published one.
func TestPublishedChunks(t *testing.T) {
	const credential = s3ID + "/20130524/us-east-1/s3/aws4_request"
	data := bytes.Repeat([]byte("a"), 66560)
	for name, x := range map[string]struct {
		p    published
		body string
	}{
		"chunks": {
			published{"PUT", "/examplebucket/chunkObject.txt", "", map[string]string{
				"X-Amz-Date": "20130524T000000Z", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY", "Content-Encoding": "aws-chunked",
				"X-Amz-Content-Sha256": chunkedSigned, "X-Amz-Decoded-Content-Length": "66560", "Content-Length": "66824",
			}, "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class", "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"},
			"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n" + string(data[:65536]) + "\r\n" +
				"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n" + string(data[65536:]) + "\r\n" +
				"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n",
		},
		"trailers": {
			published{"PUT", "/examplebucket/chunkObject.txt", "", map[string]string{
				"X-Amz-Date": "20130524T000000Z", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY", "Content-Encoding": "aws-chunked",
				"X-Amz-Content-Sha256": chunkedTrailer, "X-Amz-Decoded-Content-Length": "66560", "X-Amz-Trailer": "x-amz-checksum-crc32c",
			}, "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer", "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"},
			"10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n" + string(data[:65536]) + "\r\n" +
				"400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n" + string(data[65536:]) + "\r\n" +
				"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n" +
				"x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
		},
	} {
		m := x.p.message("s3.amazonaws.com", credential)
		m.Length = int64(len(x.body))
		c, err := Parse(m)
		if err == nil {
			err = c.Verify(m, s3Secret, "")
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := c.Sign(m, s3ID, s3Secret, "", "", c.when)
		if err != nil || out.signature != x.p.signature {
			t.Errorf("%s: signed anew %s, %v", name, out.signature, err)
			continue
		}
		for how, from := range map[string]io.Reader{"whole": strings.NewReader(x.body), "halves": iotest.HalfReader(strings.NewReader(x.body)), "its end at once": iotest.DataErrReader(strings.NewReader(x.body))} {
			body, err := c.Body(m, from, out, s3Secret, s3Secret)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err != nil || string(got) != x.body {
				t.Errorf("%s, %s: %d bytes of %d, %v", name, how, len(got), len(x.body), err)
			}
		}
	}
}
