package outbound

import (
	"net/http"

	"golang.org/x/net/http/httpguts"

	"github.com/cofferdam/cofferdam/internal/task"
)

// loginCarrier puts a token into a header as headerCarrier does, and says beside
// it which account it is for: the lease's, and no other.
type loginCarrier struct{ headerCarrier }

func (c loginCarrier) knows(l *task.Lease) bool {
	account := l.Settings[task.SettingAccount]
	return account != "" && httpguts.ValidHeaderFieldValue(account) && c.headerCarrier.knows(l)
}

func (c loginCarrier) take(l *task.Lease, rest *remainder) bool {
	if values := rest.header[task.HeaderAccount]; len(values) > 1 || len(values) == 1 && values[0] != l.Settings[task.SettingAccount] {
		return false
	}
	return c.headerCarrier.take(l, rest)
}

func (c loginCarrier) put(l *task.Lease, value Secret, out *http.Request) error {
	out.Header[task.HeaderAccount] = []string{l.Settings[task.SettingAccount]}
	return c.headerCarrier.put(l, value, out)
}
