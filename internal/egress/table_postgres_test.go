package egress

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cofferdam/cofferdam/internal/egress/postgres"
	"github.com/cofferdam/cofferdam/internal/task"
)

// lentBase is a sandbox that logs in to PostgreSQL with what the real lender lends.
type lentBase struct {
	*pgRig
	plane *controlPlane
}

func newLentBase(t *testing.T, certificate string) *lentBase {
	t.Helper()
	b := &lentBase{plane: &controlPlane{value: realPassword}}
	l := lending(t, b.plane)
	b.pgRig = &pgRig{far: newFarBase(t, certificate)}
	b.rig = newRig(t, nil, func(o *Options) { o.Roots, o.Lender, o.Granted = b.far.roots, l, l.Granted })
	b.resolver.set("db.test", addrs("127.0.0.1"))
	b.grant(func(*task.Grant) {})
	return b
}

// comes says that a login comes about, with the real password outside.
func (b *lentBase) comes(what string) *pgx.Conn {
	b.t.Helper()
	before := b.far.logins.Load()
	c, err := b.connect(nil)
	if err != nil || b.far.logins.Load() != before+1 {
		b.t.Fatalf("%s: %d logins, %v", what, b.far.logins.Load()-before, err)
	}
	return c
}

// stays says that a login is refused, and that no server outside was told
// anything of it.
func (b *lentBase) stays(what, state, words string, change func(*pgx.ConnConfig)) {
	b.t.Helper()
	users, logins := len(b.far.users), b.far.logins.Load()
	b.refused(what, state, words, change)
	if len(b.far.users) != users || b.far.logins.Load() != logins {
		b.t.Errorf("%s: the server was asked to log in", what)
	}
}

// unproved says that a login is refused after the server was named the role: it
// is told no more before the password is lent, so it lets nobody in.
func (b *lentBase) unproved(what, state, words string) {
	b.t.Helper()
	logins := b.far.logins.Load()
	b.refused(what, state, words, nil)
	if b.far.logins.Load() != logins {
		b.t.Errorf("%s: somebody was let in", what)
	}
}

func postgresRow() tableRow {
	try := func(f func(b *lentBase)) cell {
		return cell{run: func(t *testing.T) {
			b := newLentBase(t, "db.test")
			b.comes("at first")
			f(b)
		}}
	}
	none := func(why string) cell { return cell{none: why} }
	const bound = "no login is lent for this host and port (policy.credential)"
	return tableRow{task.KindPostgres, "", map[string]cell{
		"wrong host": try(func(b *lentBase) {
			b.grant(func(g *task.Grant) { g.Leases[0].Hosts = []string{"ok.test"} })
			b.stays("a rule beyond the binding", "28000", bound, nil)
		}),
		"wrong port": try(func(b *lentBase) {
			b.stays("a port without a rule", "28000", "(policy.denied)", func(c *pgx.ConnConfig) { c.Port = 5432 })
			b.grant(func(g *task.Grant) { g.Leases[0].Ports = []uint16{5432} })
			b.stays("a rule beyond the binding", "28000", bound, nil)
		}),
		"method":   none("a login has no method; what it may do is what its role may"),
		"path":     none("a login has no path; the databases that it is lent for are tried in TestLoginIsRefusedInside"),
		"redirect": none("a server of PostgreSQL sends nobody elsewhere"),
		"plain http": try(func(b *lentBase) {
			b.stays("without TLS", "28000", "(policy.protocol)", func(c *pgx.ConnConfig) { c.TLSConfig = nil })
		}),
		"kept-alive switch": none("a connection is one login to one server, and names none again"),
		"h2 :authority":     none("PostgreSQL is not spoken over HTTP"),
		"spoofed Host": try(func(b *lentBase) {
			b.stays("another name in TLS", "28000", "(policy.name_mismatch)", func(c *pgx.ConnConfig) {
				c.TLSConfig = &tls.Config{InsecureSkipVerify: true, ServerName: "ok.test"} //nolint:gosec // what a client that lies does
			})
		}),
		"bad certificate": {run: func(t *testing.T) {
			newLentBase(t, "else.test").stays("of another name", "28000", "(egress.untrusted)", nil)
		}},
		"expired": try(func(b *lentBase) {
			b.plane.say("refuses")
			b.comes("while the minute lasts")
			b.plane.later(2 * time.Minute)
			b.unproved("a lease that ended", "28000", "(policy.credential)")
			b.plane.say("lends")
			b.plane.later(2 * time.Minute)
			b.comes("lent again")
		}),
		"revoked while streaming": try(func(b *lentBase) {
			c := b.comes("a session")
			b.grant(func(g *task.Grant) { g.Leases = nil })
			if _, err := c.Exec(b.ctx(), "select 1"); err == nil {
				b.t.Error("the session outlives its lease")
			}
			if k := <-b.far.cancels; k != (postgres.Key{Process: 11, Secret: 22}) {
				b.t.Errorf("canceled %+v", k)
			}
			b.stays("after it", "28000", bound, nil)
		}),
		"control plane away": try(func(b *lentBase) {
			b.plane.say("away")
			b.comes("what is held")
			b.plane.later(2 * time.Minute)
			b.unproved("what is not held", "57P03", "(infra.control_plane_away)")
			b.plane.say("lends")
			b.comes("when it is back")
		}),
	}}
}
