package task

import (
	"errors"
	"strings"
)

// Settings of KindAWS and KindAWSWeb: the names that a signature's scope may
// have, one or several with commas between them.
const (
	SettingRegion   = "region"
	SettingServices = "services"
)

// AWSKeys are the keys that requests of KindAWS and KindAWSWeb are signed with.
// The zero AWSKeys sign nothing.
type AWSKeys struct {
	ID     string // of the access key; no secret, and sent with every request
	Secret Secret
	Token  Secret // of a session; empty for keys that last
}

// ParseAWSKeys reads keys in the one form they are kept, lent and stood in for:
// ID:SECRET or ID:SECRET:TOKEN. Errors hold none of it.
func ParseAWSKeys(text string) (AWSKeys, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return AWSKeys{}, errors.New("must be ID:SECRET, or ID:SECRET:TOKEN for temporary keys")
	}
	id, secret, token := parts[0], parts[1], ""
	if len(parts) == 3 {
		token = parts[2]
	}
	switch {
	case len(id) < 3 || len(id) > 128 || !only(id, func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '-' || c == '.'
	}):
		return AWSKeys{}, errors.New("begins with what is no access key id: 3 to 128 letters, digits, dots, dashes and underscores")
	case len(secret) < 8 || len(secret) > 256 || !only(secret, graphic):
		return AWSKeys{}, errors.New("has a secret access key that is not 8 to 256 printable characters without spaces")
	case len(parts) == 3 && (len(token) < 16 || len(token) > 6<<10 || !only(token, graphic)):
		return AWSKeys{}, errors.New("has a session token that is not 16 to 6144 printable characters without spaces")
	case strings.HasPrefix(id, "ASIA") && token == "":
		return AWSKeys{}, errors.New("has temporary keys (ASIA…) without their session token; give ID:SECRET:TOKEN")
	case strings.HasPrefix(id, "AKIA") && token != "":
		return AWSKeys{}, errors.New("has a session token beside keys that have none (AKIA…); give ID:SECRET")
	}
	keys := AWSKeys{ID: id, Secret: NewSecret(secret)}
	if token != "" {
		keys.Token = NewSecret(token)
	}
	return keys, nil
}

// Text is what ParseAWSKeys reads.
func (k AWSKeys) Text() Secret {
	text := k.ID + ":" + k.Secret.Reveal()
	if !k.Token.Empty() {
		text += ":" + k.Token.Reveal()
	}
	return NewSecret(text)
}

// AWSTexts are the texts of which a pair of keys consists, each of which stands
// alone in requests; of anything else the text itself.
func AWSTexts(text string) []string {
	keys, err := ParseAWSKeys(text)
	if err != nil {
		return []string{text}
	}
	out := []string{keys.ID, keys.Secret.Reveal()}
	if !keys.Token.Empty() {
		out = append(out, keys.Token.Reveal())
	}
	return out
}

func graphic(c byte) bool { return c > ' ' && c < 0x7f }

func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
