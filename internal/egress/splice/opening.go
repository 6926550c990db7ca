package splice

import (
	"bytes"
	"errors"
	"strings"
)

// Kind is what a connection turned out to be.
type Kind uint8

// The kinds. The zero value is not a kind.
const (
	Unknown  Kind = iota // more bytes are needed
	TLS                  // a whole, acceptable ClientHello is there
	HTTP                 // a request line of HTTP/1 is there
	Other                // something that carries no name
	Refusing             // something that would have to carry a name and can't be read
)

// Opening is what the first bytes of a client say.
type Opening struct {
	Kind Kind
	SNI  string // of TLS
	Why  string // of Refusing, for the log
}

const (
	lineMax    = 16 << 10
	methodMax  = 32
	emptyLines = 16 // bytes of empty lines that may precede a request (RFC 9112 §2.2)
)

// knownMethods are the request methods that no other protocol begins with: a
// line that begins so has to be HTTP/1.
var knownMethods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true, "TRACE": true, "PATCH": true, "PRI": true,
	"ACL": true, "COPY": true, "LOCK": true, "UNLOCK": true, "MOVE": true, "MKCOL": true, "PROPFIND": true, "PROPPATCH": true,
	"REPORT": true, "SEARCH": true, "LINK": true, "UNLINK": true, "MERGE": true, "PURGE": true, "QUERY": true, "MKCALENDAR": true,
}

// Look judges what a client has sent so far.
func Look(data []byte) Opening {
	if len(data) == 0 {
		return Opening{}
	}
	if data[0] == recordHandshake {
		return lookTLS(data)
	}
	return lookHTTP(data)
}

func lookTLS(data []byte) Opening {
	name, err := ServerName(data)
	switch {
	case err == nil:
		return Opening{Kind: TLS, SNI: name}
	case errors.Is(err, ErrShort):
		return Opening{}
	}
	return Opening{Kind: Refusing, Why: err.Error()}
}

func lookHTTP(data []byte) Opening {
	line := bytes.TrimLeft(data, "\r\n")
	if len(line) == 0 {
		if len(data) > emptyLines {
			return Opening{Kind: Refusing, Why: "empty lines"}
		}
		return Opening{}
	}
	i := 0
	for i < len(line) && i <= methodMax && token(line[i]) {
		i++
	}
	if i == len(line) {
		return Opening{}
	}
	method := string(line[:i])
	if i == 0 || i > methodMax || line[i] != ' ' && line[i] != '\t' {
		return Opening{Kind: Other}
	}
	end := bytes.IndexByte(line, '\n')
	switch {
	case end < 0 && len(line) < lineMax:
		return Opening{}
	case end < 0:
		return Opening{Kind: Refusing, Why: "endless line"}
	case method == "PRI":
		return Opening{Kind: Refusing, Why: "HTTP/2 in clear text"}
	case strings.Contains(strings.ToUpper(string(line[i:end])), "HTTP/"):
		return Opening{Kind: HTTP}
	case knownMethods[strings.ToUpper(method)]:
		return Opening{Kind: Refusing, Why: "request without a version"}
	}
	return Opening{Kind: Other}
}

// Free says whether what a client has sent so far need not become TLS or a
// request with a known method, so that a protocol of short words may be meant.
func Free(data []byte) bool {
	line := bytes.TrimLeft(data, "\r\n")
	if len(line) == 0 || data[0] == recordHandshake || bytes.IndexByte(line, ' ') >= 0 || bytes.IndexByte(line, '\t') >= 0 {
		return false
	}
	word := strings.ToUpper(string(line))
	for method := range knownMethods {
		if strings.HasPrefix(method, word) {
			return false
		}
	}
	return true
}

// token says whether c may stand in a method (RFC 9110 §5.6.2).
func token(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
