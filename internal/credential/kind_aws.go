package credential

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// awsKind is a pair of keys with which requests are signed (AWS Signature
// Version 4). The sandbox signs with keys that stand for them; the gateway
// verifies that signature and signs anew. Region and services are those of a
// signature's scope, and no other is signed for.
func awsKind() kind {
	return kind{
		name: task.KindAWS,
		settings: map[string]setting{
			task.SettingRegion:   {required: true, lent: true, fault: scopeFault},
			task.SettingServices: {required: true, lent: true, fault: scopeFault},
		},
		fault:       awsKeysFault,
		placeholder: func(c task.Credential) string { return awsPlaceholder(c.Shape == shapeSession) },
	}
}

// shapeSession is what the id of temporary keys begins with, shapeLasting of
// others.
const (
	shapeSession = "ASIA"
	shapeLasting = "AKIA"
)

// scopeFault judges one name of a region or a service or several, with commas
// between them.
func scopeFault(list string) string {
	for name := range strings.SplitSeq(list, ",") {
		if name == "*" {
			return "must name each one: a signature is never lent for all of them"
		}
		if name == "" || len(name) > 64 {
			return "has a name that is empty or too long; write one, or several as a,b without spaces"
		}
		for _, c := range []byte(name) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return fmt.Sprintf("%q must be a name as it stands in a signature's scope: lower-case letters, digits and dashes", name)
			}
		}
	}
	return ""
}

// awsKeysFault says what is wrong with keys without telling any of them.
func awsKeysFault(value string) string {
	if len(value) > maxValue {
		return fmt.Sprintf("longer than %d bytes", maxValue)
	}
	if strings.Contains(strings.ToLower(value), word) {
		return "is a placeholder and no keys"
	}
	if _, err := task.ParseAWSKeys(value); err != nil {
		return err.Error()
	}
	return ""
}

// awsPlaceholder makes keys that stand for others: an id of the usual length,
// which clients check, and a secret of which 145 bits are random.
func awsPlaceholder(session bool) string {
	const idLength, secretLength = 20, 40
	id, text := shapeLasting, base32Text(3*secretLength)
	if session {
		id = shapeSession
	}
	id += strings.ToUpper(word)
	id += strings.ToUpper(text[:idLength-len(id)])
	keys := task.AWSKeys{ID: id, Secret: task.NewSecret(word + text[idLength:idLength+secretLength-len(word)])}
	if session {
		keys.Token = task.NewSecret(word + text[2*secretLength:])
	}
	return keys.Text().Reveal()
}

// base32Text is n random letters and digits.
func base32Text(n int) string {
	raw := make([]byte, (n*5+7)/8)
	_, _ = rand.Read(raw) // never fails (crypto/rand since Go 1.24)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))[:n]
}
