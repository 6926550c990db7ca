package store

import (
	"strings"

	"github.com/uptrace/bun/dialect/sqlitedialect"
)

// dialect is SQLite's, with text made storable: neither SQLite's parser nor
// PostgreSQL has a NUL in text, and what an agent printed must not stop the row
// that tells of it. Invalid UTF-8 becomes the same replacement character.
type dialect struct{ *sqlitedialect.Dialect }

func newDialect() dialect { return dialect{sqlitedialect.New()} }

// AppendString quotes a string.
func (d dialect) AppendString(b []byte, s string) []byte {
	return d.Dialect.AppendString(b, strings.ReplaceAll(s, "\x00", "\ufffd"))
}
