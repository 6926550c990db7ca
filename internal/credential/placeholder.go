package credential

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// shape is how the keys of a vendor look: what they begin with, and how long
// they are.
type shape struct {
	begin  string
	length int
}

// shapes lists those that clients check, the longer beginnings first.
func shapes() []shape {
	return []shape{
		{"sk-ant-api03-", 108},
		{"sk-ant-oat01-", 108},
		{"sk-ant-", 64},
		{"sk-proj-", 132},
		{"sk-or-v1-", 73},
		{"sk-svcacct-", 132},
		{"sk-", 51},
		{"AIza", 39},
		{shapeLasting, 20},
		{shapeSession, 20},
		{"github_pat_", 93},
		{"ghp_", 40},
		{"gho_", 40},
		{"ghs_", 40},
		{"glpat-", 46},
		{"xoxb-", 57},
		{"npm_", 40},
		{"hf_", 37},
		{"pypi-", 60},
	}
}

// shapeOf gives the beginning that a value has in common with every key of its
// kind, or what the provider's keys begin with; empty for one that is not known.
func shapeOf(value, provider string) string {
	for _, s := range shapes() {
		if strings.HasPrefix(value, s.begin) {
			return s.begin
		}
	}
	switch provider {
	case "anthropic":
		return "sk-ant-api03-"
	case "openai":
		return "sk-proj-"
	case "google":
		return "AIza"
	}
	return ""
}

// word is in every placeholder.
const word = "placeholder"

// minRandom characters of a placeholder are random: 120 bits.
const minRandom = 24

// newPlaceholder makes a placeholder of the shape. It has letters, digits and
// the dashes of its beginning only, so it needs no escaping anywhere.
func newPlaceholder(begin string) string {
	length := 0
	for _, s := range shapes() {
		if s.begin == begin {
			length = s.length
		}
	}
	n := max(minRandom, length-len(begin)-len(word))
	raw := make([]byte, (n*5+7)/8)
	_, _ = rand.Read(raw) // never fails (crypto/rand since Go 1.24)
	random := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))
	return begin + word + random[:n]
}
