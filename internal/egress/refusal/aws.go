package refusal

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Answer answers a request with the problem in the form that its client prints:
// clients of AWS show what the service they call would have said, and nothing of
// another body.
func (p Problem) Answer(w http.ResponseWriter, r *http.Request) {
	service := awsService(r)
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case service == "":
		p.Write(w)
	case strings.HasPrefix(service, "s3"):
		p.fill()
		p.writeXML(w, awsError{XMLName: xml.Name{Local: "Error"}, Code: p.Code, Message: p.said(), Resource: p.Path, RequestID: byGateway})
	case kind == "application/x-www-form-urlencoded" && r.Header.Get("X-Amz-Target") == "", slices.Contains([]string{"route53", "cloudfront"}, service):
		p.fill()
		p.writeXML(w, awsErrors{Error: awsError{XMLName: xml.Name{Local: "Error"}, Type: "Sender", Code: p.Code, Message: p.said()}, RequestID: byGateway})
	default:
		w.Header().Set("X-Amzn-Errortype", string(p.Code))
		p.fill()
		p.Type, p.Message = p.Code, p.said()
		p.Write(w)
	}
}

// byGateway stands where AWS names a request: theirs would not know of it.
const byGateway = "refused-by-the-gateway"

// awsError is an error as services of AWS write it in XML.
type awsError struct {
	XMLName   xml.Name
	Type      string `xml:",omitempty"`
	Code      task.Reason
	Message   string
	Resource  string `xml:",omitempty"`
	RequestID string `xml:"RequestId,omitempty"`
}

type awsErrors struct {
	XMLName   xml.Name `xml:"ErrorResponse"`
	Error     awsError
	RequestID string `xml:"RequestId"`
}

func (p Problem) said() string { return p.Hint + " (" + string(p.Code) + ")" }

func (p Problem) writeXML(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(p.Status)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return
	}
	_ = xml.NewEncoder(w).Encode(v)
}

func (p Problem) writeJSON(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// awsService is the service that a request is signed for (AWS Signature Version
// 4 and 4a), as it says itself; empty: it is not signed so.
func awsService(r *http.Request) string {
	text, signed := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-")
	if signed {
		_, text, _ = strings.Cut(text, "Credential=")
		text, _, _ = strings.Cut(text, ",")
	} else if text = r.URL.Query().Get("X-Amz-Credential"); text == "" {
		return ""
	}
	scope := strings.Split(strings.TrimSpace(text), "/")
	service := "" // which can't be read
	if n := len(scope); n >= 3 && scope[n-1] == "aws4_request" {
		service = strings.ToLower(scope[n-2])
	}
	return cmp.Or(service, "aws")
}
