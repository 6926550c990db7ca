package lower

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// etcAllowed are the parts of the host's /etc that programs need and that hold
// no secret. What is not here does not get in: files that commonly carry
// credentials (gitconfig, npmrc, pip.conf, environment, profile.d, apt, docker, ssh, shadow,
// sudoers, cron) are left out on purpose. A name ending in * is a prefix.
var etcAllowed = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl*",
	"ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates", "ca-certificates.conf",
	"pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "crypto-policies",
	"localtime", "timezone", "locale.alias", "locale.conf", "locale.gen", "default/locale",
	"mime.types", "magic", "magic.mime", "protocols", "services", "networks", "rpc", "ethertypes",
	"gai.conf", "host.conf", "os-release", "debian_version", "lsb-release", "redhat-release", "alpine-release",
	"bash.bashrc", "bashrc", "profile", "inputrc", "shells", "login.defs", "skel", "terminfo", "vim",
	"nanorc", "groff", "manpath.config", "fonts", "xml", "sgml", "X11/app-defaults",
	"python3*", "perl", "java*", "maven", "php", "lua", "R", "ImageMagick*", "gprofng.rc", "debuginfod",
	"openmpi", "OpenCL", "vulkan", "glvnd", "mke2fs.conf", "chromium.d", "xattr.conf", "dpkg/origins",
}

// etcMaxFile is the largest file copied from /etc.
const etcMaxFile = 8 << 20

func etcWanted(rel string) bool {
	for _, allowed := range etcAllowed {
		if prefix, ok := strings.CutSuffix(allowed, "*"); ok && strings.HasPrefix(rel, prefix) {
			return true
		}
		if rel == allowed || strings.HasPrefix(rel, allowed+"/") || strings.HasPrefix(allowed, rel+"/") {
			return true
		}
	}
	return false
}

// walkEtc calls visit for each wanted entry below etc. Files that not everybody
// may read are secrets of somebody and are left out.
func walkEtc(etc string, visit func(path, rel string, info os.FileInfo) error) error {
	return filepath.WalkDir(etc, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}
		if path == etc {
			return nil
		}
		rel, err := filepath.Rel(etc, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		readable := info.Mode().Perm()&0o004 != 0 || info.Mode()&os.ModeSymlink != 0
		if !etcWanted(rel) || !readable || info.Size() > etcMaxFile {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		return visit(path, rel, info)
	})
}

// etcOwn are the files of /etc that the sandbox has of its own.
func etcOwn(gateway string) map[string]string {
	return map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" +
			"agent:x:1000:1000:agent:/home/agent:/bin/bash\n",
		"group": "root:x:0:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\nstaff:x:50:\nusers:x:100:\n" +
			"nogroup:x:65534:\nagent:x:1000:\n",
		"gitconfig":     gitconfig(),
		"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n",
		"hostname":      "sandbox\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
		"resolv.conf":   "nameserver " + gateway + "\noptions timeout:3 attempts:2\n",
	}
}

// gitconfig makes git ask the large forges by HTTPS where a submodule or a
// person names them by SSH: there is no key inside, and no rule is about SSH.
// What a user's or a repository's own file says of a longer address counts more.
func gitconfig() string {
	var b strings.Builder
	for _, forge := range []string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"} {
		b.WriteString("[url \"https://" + forge + "/\"]\n\tinsteadOf = git@" + forge + ":\n\tinsteadOf = ssh://git@" + forge + "/\n")
	}
	return b.String()
}

func writeEtc(etc, gateway string) error {
	for name, text := range etcOwn(gateway) {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.Symlink("/proc/mounts", filepath.Join(etc, "mtab")); err != nil {
		return err
	}
	// The guest gives each sandbox one of its own.
	return os.WriteFile(filepath.Join(etc, "machine-id"), nil, 0o444)
}
