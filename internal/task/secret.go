package task

import (
	"fmt"
	"io"
)

// Secret is a value that nothing prints, logs or encodes; Reveal gives it to
// who uses it. The text stands behind a pointer because fmt prints the fields
// of unexported fields without asking their methods, but follows no pointer.
// The zero Secret is empty.
type Secret struct{ text *string }

// NewSecret takes a value.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the value.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty says whether there is no value.
func (s Secret) Empty() bool { return s.text == nil || *s.text == "" }

const sealed = "[sealed]"

// String hides the value.
func (Secret) String() string { return sealed }

// GoString hides the value.
func (Secret) GoString() string { return sealed }

// Format hides the value under every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, sealed) }

// MarshalText hides the value, also in JSON and in what log/slog writes.
func (Secret) MarshalText() ([]byte, error) { return []byte(sealed), nil }
