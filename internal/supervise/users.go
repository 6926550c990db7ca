package supervise

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// The users of the daemons when the machine has none of these names: numbers
// that need no entry in the user list.
const (
	serviceName = "cofferdam"
	gatewayName = "cofferdam-gateway"
	serviceID   = 47810
	gatewayID   = 47811
)

// users are who the daemons run as; the worker runs as root.
type users struct{ service, gateway owner }

func findUsers(service, gateway string) (users, error) {
	var u users
	var err error
	if u.service, err = findUser("--service-user", service, serviceName, serviceID); err != nil {
		return u, err
	}
	if u.gateway, err = findUser("--gateway-user", gateway, gatewayName, gatewayID); err != nil {
		return u, err
	}
	if u.service.uid == u.gateway.uid {
		return u, fault(CodeInvalid, "--service-user and --gateway-user are both uid %d; the gateway meets hostile bytes and must not be able to read the keys, so give two users", u.service.uid)
	}
	return u, nil
}

func findUser(flag, asked, name string, number int) (owner, error) {
	if asked == "" {
		e, ok, err := lookUp(name)
		switch {
		case err != nil:
			return owner{}, err
		case !ok:
			return owner{number, number}, nil
		}
		return notRoot(flag, name, e.owner)
	}
	if n, err := strconv.Atoi(asked); err == nil {
		if n < 0 || n > 1<<31 {
			return owner{}, fault(CodeInvalid, "%s %s: not a user number", flag, asked)
		}
		o := owner{n, n}
		if e, ok, err := lookUp(asked); err == nil && ok {
			o = e.owner
		}
		return notRoot(flag, asked, o)
	}
	e, ok, err := lookUp(asked)
	if err != nil {
		return owner{}, err
	}
	if !ok {
		return owner{}, fault(CodeInvalid, "%s %s: the machine has no such user; make it (useradd --system %s) or give a number", flag, asked, asked)
	}
	return notRoot(flag, asked, e.owner)
}

func notRoot(flag, asked string, o owner) (owner, error) {
	if o.uid == 0 || o.gid == 0 {
		return o, fault(CodeInvalid, "%s %s: this is root; the daemon must run as a user without rights", flag, asked)
	}
	return o, nil
}

// account is a line of the machine's user list.
type account struct {
	owner
	name string
	home string
}

// lookUp finds a user of the machine by name or number.
func lookUp(name string) (account, bool, error) {
	f, err := os.Open("/etc/passwd")
	if errors.Is(err, fs.ErrNotExist) {
		return account{}, false, nil
	}
	if err != nil {
		return account{}, false, faultOf(CodeMachine, err, "the machine's user list")
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 6 || (fields[0] != name && fields[2] != name) {
			continue
		}
		uid, err1 := strconv.Atoi(fields[2])
		gid, err2 := strconv.Atoi(fields[3])
		if err1 != nil || err2 != nil {
			continue
		}
		return account{owner{uid, gid}, fields[0], fields[5]}, true, nil
	}
	if err := lines.Err(); err != nil {
		return account{}, false, faultOf(CodeMachine, err, "the machine's user list")
	}
	return account{}, false, nil
}
