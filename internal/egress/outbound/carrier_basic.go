package outbound

import (
	"encoding/base64"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/cofferdam/cofferdam/internal/task"
)

const authorization = "Authorization"

// basicCarrier puts the value into Basic authentication (RFC 7617) as the
// password of a user whose name is in the lease.
type basicCarrier struct{}

func (basicCarrier) knows(l *task.Lease) bool {
	return l.Placeholder != "" && !strings.Contains(l.Settings[task.SettingUser], ":") && httpguts.ValidHeaderFieldValue(l.Settings[task.SettingUser])
}

// take lets nothing stand there but the user with the placeholder, encoded in
// the one usual way.
func (basicCarrier) take(l *task.Lease, rest *remainder) bool {
	if values := rest.header[authorization]; len(values) > 1 || len(values) == 1 && !isBasic(l, values[0]) {
		return false
	}
	if !rest.keyless(authorization) {
		return false
	}
	delete(rest.header, authorization)
	return true
}

func isBasic(l *task.Lease, value string) bool {
	scheme, text, _ := strings.Cut(value, " ")
	return strings.EqualFold(scheme, "Basic") && text == credentials(l, l.Placeholder)
}

// credentials are user and password as they are sent.
func credentials(l *task.Lease, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(l.Settings[task.SettingUser] + ":" + password))
}

func (basicCarrier) fits(_ *task.Lease, value Secret) bool {
	return !value.Empty() && httpguts.ValidHeaderFieldValue(value.Reveal())
}

func (basicCarrier) put(l *task.Lease, value Secret, out *http.Request) error {
	out.Header[authorization] = []string{"Basic " + credentials(l, value.Reveal())}
	return nil
}
