// Command sdk makes awssdkgo.json: requests that AWS's SDK for Go signed twice, as
// generate.py does with botocore. README.md says how to run it.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

type side struct {
	Method string      `json:"method"`
	Host   string      `json:"host"`
	Path   string      `json:"path"`
	Query  string      `json:"query"`
	Header [][2]string `json:"header"`
	Body   string      `json:"body"`
}

type vector struct {
	Name        string    `json:"name"`
	Service     string    `json:"service"`
	Region      string    `json:"region"`
	InsideKeys  [3]string `json:"insideKeys"`
	OutsideKeys [3]string `json:"outsideKeys"`
	Inside      side      `json:"inside"`
	Outside     side      `json:"outside"`
}

type asked struct {
	name, service, method, url, body, digest string
	header                                   map[string]string
	presigned                                bool
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sign(a asked, keys [3]string) side {
	r, err := http.NewRequest(a.method, a.url, strings.NewReader(a.body))
	if err != nil {
		panic(err)
	}
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	sum := sha256.Sum256([]byte(a.body))
	digest := hex.EncodeToString(sum[:])
	if a.digest != "" {
		digest = a.digest
	}
	simple := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = a.service == "s3" }
	if a.service == "s3" && !a.presigned {
		if a.digest == "" {
			r.Header.Set("X-Amz-Content-Sha256", digest)
		} else {
			r.Header.Set("X-Amz-Content-Sha256", a.digest)
		}
	}
	creds := aws.Credentials{AccessKeyID: keys[0], SecretAccessKey: keys[1], SessionToken: keys[2]}
	signer := v4.NewSigner()
	out := side{Method: a.method, Host: r.URL.Host, Body: a.body}
	if a.presigned {
		q := r.URL.Query()
		q.Set("X-Amz-Expires", "900")
		r.URL.RawQuery = q.Encode()
		text, header, err := signer.PresignHTTP(context.Background(), creds, r, digest, a.service, "us-east-1", now, simple)
		if err != nil {
			panic(err)
		}
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		out.Path, out.Query = u.EscapedPath(), u.RawQuery
		r.Header = header
		r.Header.Del("Host")
	} else {
		if err := signer.SignHTTP(context.Background(), creds, r, digest, a.service, "us-east-1", now, simple); err != nil {
			panic(err)
		}
		out.Path, out.Query = r.URL.EscapedPath(), r.URL.RawQuery
		if len(a.body) > 0 {
			r.Header.Set("Content-Length", fmt.Sprint(len(a.body)))
		}
	}
	for name, values := range r.Header {
		for _, v := range values {
			out.Header = append(out.Header, [2]string{name, v})
		}
	}
	sort.Slice(out.Header, func(i, j int) bool { return out.Header[i][0] < out.Header[j][0] })
	return out
}

func main() {
	inside := [3]string{"AKIAPLACEHOLDERABCDE", "placeholderabcdefghijklmnopqrstuvwxyz234", ""}
	session := [3]string{"ASIAPLACEHOLDERABCDE", "placeholderabcdefghijklmnopqrstuvwxyz234", "placeholder/token+of==session"}
	real := [3]string{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""}
	token := [3]string{"ASIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "IQoJb3JpZ2luX2VjE/token+with==signs"}
	const s3 = "https://bucket.s3.us-east-1.amazonaws.com"
	var lines []string
	for _, a := range []asked{
		{name: "s3 get", service: "s3", method: "GET", url: s3 + "/key"},
		{name: "s3 key of many kinds", service: "s3", method: "GET", url: s3 + "/a%20b%2Bc/%C3%A4/%25/x%3Dy!(z)"},
		{name: "s3 key with dots and slashes", service: "s3", method: "GET", url: s3 + "//a/./b//"},
		{name: "s3 query", service: "s3", method: "GET", url: s3 + "/?list-type=2&prefix=a%2Fb+c&start-after=&x=%2B"},
		{name: "s3 put", service: "s3", method: "PUT", url: s3 + "/key", body: "some text", header: map[string]string{"Content-Type": "text/plain", "X-Amz-Meta-Note": "two   spaces"}},
		{name: "s3 put, unsigned", service: "s3", method: "PUT", url: s3 + "/key", body: "some text", digest: "UNSIGNED-PAYLOAD"},
		{name: "sts", service: "sts", method: "POST", url: "https://sts.us-east-1.amazonaws.com/", body: "Action=GetCallerIdentity&Version=2011-06-15", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		{name: "a path that is encoded twice", service: "lambda", method: "GET", url: "https://lambda.us-east-1.amazonaws.com/2015-03-31/functions/arn%3Aaws%3Alambda%3A1/policy?Qualifier=%24LATEST"},
		{name: "a path that is not normalised", service: "execute-api", method: "GET", url: "https://abc.execute-api.us-east-1.amazonaws.com/stage//b%20c/?b=2&a=3&a=1"},
		{name: "s3 presigned", service: "s3", method: "GET", url: s3 + "/a%20key?versionId=null", digest: "UNSIGNED-PAYLOAD", presigned: true},
		{name: "sts presigned", service: "sts", method: "GET", url: "https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15", presigned: true},
	} {
		for _, pair := range [][2][3]string{{inside, real}, {session, token}} {
			text, err := json.Marshal(vector{a.name, a.service, "us-east-1", pair[0], pair[1], sign(a, pair[0]), sign(a, pair[1])})
			if err != nil {
				panic(err)
			}
			lines = append(lines, string(text))
		}
	}
	fmt.Fprintf(os.Stdout, "{\"sdk\": %q, \"now\": \"20260301T120000Z\", \"cases\": [\n%s\n]}\n", aws.SDKVersion, strings.Join(lines, ",\n"))
}
