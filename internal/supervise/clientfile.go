package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ClientConfig is the command line's configuration file.
type ClientConfig struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	Data  string `json:"data,omitempty"` // the data folder, when the installation is on this machine
}

// adminToken reads the first token, which the server made at its first start.
func (l Layout) adminToken() (string, error) { return l.token("admin") }

func (l Layout) token(name string) (string, error) {
	data, err := l.readOwned("cofferdamd", "keys/"+name+".token")
	token := strings.TrimSpace(string(data))
	if err == nil && (token == "" || strings.ContainsAny(token, " \t\n")) {
		err = fmt.Errorf("not a token")
	}
	if err != nil {
		return "", faultOf(CodeProgram, err, "the %s token, which cofferdamd makes at its first start", name)
	}
	return token, nil
}

// copyWorkerToken gives the worker its token as a file of its own.
func (l Layout) copyWorkerToken() error {
	token, err := l.token("worker")
	if err != nil {
		return err
	}
	return writeFile(l.workerToken(), []byte(token+"\n"), 0o600, owner{})
}

// copyGatewayToken gives the gateway its token as a file that only its user
// reads. The folder is the gateway's own: nothing outside of it is touched
// whatever stands there.
func (l Layout) copyGatewayToken(who owner) error {
	token, err := l.token("gateway")
	if err != nil {
		return err
	}
	return writeFile(l.gatewayToken(), []byte(token+"\n"), 0o600, who)
}

// writeClientFiles writes the configuration beside the data and for the person
// who called. It returns the second one's path, and why it could not be
// written: that is a note, since the installation works without it.
func (l Layout) writeClientFiles(url string) (path string, note error, err error) {
	token, err := l.adminToken()
	if err != nil {
		return "", nil, err
	}
	data, err := json.MarshalIndent(ClientConfig{URL: url, Token: token, Data: l.Data}, "", "  ")
	if err != nil {
		return "", nil, fmt.Errorf("client configuration: %w", err)
	}
	data = append(data, '\n')
	if err := writeFile(l.ClientFile(), data, 0o600, owner{}); err != nil {
		return "", nil, err
	}
	path, note = writeForCaller(data)
	return path, note, nil
}

// writeForCaller writes the standard configuration file of whoever called,
// also through sudo. The folders belong to that person, so nothing outside of
// the starting folder is touched whatever links stand there.
func writeForCaller(data []byte) (string, error) {
	base, sub, who, err := callerFolder()
	if err != nil {
		return "", err
	}
	if who.uid == os.Geteuid() {
		if err := os.MkdirAll(base, 0o700); err != nil {
			return "", fmt.Errorf("configuration folder: %w", err)
		}
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return "", fmt.Errorf("configuration folder: %w", err)
	}
	defer root.Close()
	at := ""
	for part := range strings.SplitSeq(sub, "/") {
		at = filepath.Join(at, part)
		err := root.Mkdir(at, 0o700)
		if err == nil && os.Geteuid() == 0 {
			err = root.Lchown(at, who.uid, who.gid)
		}
		if err != nil && !os.IsExist(err) {
			return "", fmt.Errorf("configuration folder %s: %w", filepath.Join(base, at), err)
		}
	}
	dir, err := root.OpenRoot(sub)
	if err != nil {
		return "", fmt.Errorf("configuration folder: %w", err)
	}
	defer dir.Close()
	path := filepath.Join(base, sub, "client.json")
	if err := writeIn(dir, "client.json", data, 0o600, who); err != nil {
		return "", fmt.Errorf("configuration file %s: %w", path, err)
	}
	return path, nil
}

// callerFolder returns a folder that exists, or that the caller may make, and
// the way below it.
func callerFolder() (base, sub string, who owner, err error) {
	if name := os.Getenv("SUDO_USER"); os.Geteuid() == 0 && name != "" && name != "root" {
		a, ok, err := lookUp(name)
		if err != nil {
			return "", "", owner{}, err
		}
		if !ok || strconv.Itoa(a.uid) != os.Getenv("SUDO_UID") || a.home == "" {
			return "", "", owner{}, fmt.Errorf("the user %q behind sudo is not in the machine's user list", name)
		}
		return a.home, ".config/cofferdam", a.owner, nil
	}
	who = owner{os.Geteuid(), os.Getegid()}
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir, "cofferdam", who, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		a, ok, lerr := lookUp(strconv.Itoa(who.uid))
		if lerr != nil || !ok {
			return "", "", who, fmt.Errorf("home folder: %w", err)
		}
		home = a.home
	}
	return home, ".config/cofferdam", who, nil
}

// SaveToken puts another token into a configuration file of the command line, in
// place of the one that is there.
func SaveToken(path, token string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var conf ClientConfig
	if err := json.Unmarshal(data, &conf); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	conf.Token = token
	if data, err = json.MarshalIndent(conf, "", "  "); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	who := owner{os.Geteuid(), os.Getegid()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		who = owner{int(st.Uid), int(st.Gid)}
	}
	return writeFile(path, append(data, '\n'), 0o600, who)
}
