package refusal

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func signedFor(service string, header ...string) *http.Request {
	r := httptest.NewRequest("POST", "/b/a%20key?x=1", nil)
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIA/20261130/us-east-1/"+service+"/aws4_request, SignedHeaders=host, Signature=00")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func TestAnswersThatClientsOfAWSPrint(t *testing.T) {
	presigned := httptest.NewRequest("GET", "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F20261130%2Fus-east-1%2Fs3%2Faws4_request", nil)
	v4a := signedFor("s3")
	v4a.Header.Set("Authorization", "AWS4-ECDSA-P256-SHA256 Credential=AKIA/20261130/s3/aws4_request, SignedHeaders=host, Signature=00")
	form := []string{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}
	for name, c := range map[string]struct {
		r          *http.Request
		kind, root string // root element of XML; empty: JSON
	}{
		"S3":           {signedFor("s3"), "application/xml", "Error"},
		"S3 presigned": {presigned, "application/xml", "Error"},
		"S3 with 4a":   {v4a, "application/xml", "Error"},
		"S3 Express":   {signedFor("s3express"), "application/xml", "Error"},
		"a query":      {signedFor("sts", form...), "application/xml", "ErrorResponse"},
		"Route 53":     {signedFor("route53"), "application/xml", "ErrorResponse"},
		"JSON":         {signedFor("dynamodb", "X-Amz-Target", "DynamoDB_20120810.GetItem"), "application/problem+json", ""},
		"REST in JSON": {signedFor("lambda"), "application/problem+json", ""},
		"odd":          {signedFor("/../"), "application/problem+json", ""},
		"not signed":   {httptest.NewRequest("GET", "/x", nil), "application/problem+json", ""},
	} {
		w := httptest.NewRecorder()
		Problem{Code: task.PolicyCredential, Host: "ok.test", Port: 443, Path: "/b/<k>", Hint: "Say <this> & that."}.Answer(w, c.r)
		if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != c.kind {
			t.Errorf("%s: %d %s", name, w.Code, w.Header())
		}
		if c.root == "" {
			var p Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != task.PolicyCredential || p.Hint != "Say <this> & that." || (p.Message == "") != (name == "not signed") {
				t.Errorf("%s: %s, %v", name, w.Body, err)
			}
			continue
		}
		type told struct{ Code, Message string }
		var e struct {
			XMLName xml.Name
			told
			Error told
		}
		if err := xml.Unmarshal(w.Body.Bytes(), &e); err != nil || e.XMLName.Local != c.root {
			t.Errorf("%s: %s, %v", name, w.Body, err)
		}
		got := e.told
		if c.root == "ErrorResponse" {
			got = e.Error
		}
		if got.Code != "policy.credential" || !strings.HasPrefix(got.Message, "Say <this> & that.") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
