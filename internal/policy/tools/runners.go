package tools

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// runners are programs that can run another one by their arguments, their
// configuration, or what they are given to read. Their names alone are never
// allowed, nor are they with an argument that may be several things.
func runners() []string {
	return []string{
		// Shells, and words of shells.
		"sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "busybox", "toybox", "eval", "exec", "source", ".", "command", "builtin", "trap", "time",
		// What runs the rest of its arguments.
		"env", "xargs", "parallel", "nohup", "timeout", "nice", "ionice", "setsid", "stdbuf", "sudo", "su", "doas", "runuser", "chroot", "unshare", "nsenter", "strace", "ltrace",
		"gdb", "perf", "watch", "entr", "flock", "script", "expect", "ld.so", "setarch", "taskset", "chrt", "prlimit", "capsh", "systemd-run", "at", "batch", "crontab", "ssh-agent",
		"dbus-run-session", "xvfb-run", "fakeroot", "proot", "bwrap", "firejail", "tini", "catchsegv", "valgrind", "unbuffer", "start-stop-daemon",
		// What has an option or a setting for it.
		"find", "fd", "fdfind", "rg", "ag", "git", "hg", "svn", "tar", "bsdtar", "cpio", "zip", "7z", "rsync", "scp", "sftp", "ssh", "curl", "wget", "nc", "ncat", "netcat", "socat",
		"sed", "awk", "gawk", "mawk", "nawk", "ed", "ex", "vi", "vim", "nvim", "view", "emacs", "nano", "less", "more", "most", "man", "info", "pager", "sort", "split", "dd", "tee",
		"column", "pr", "m4", "bc", "dc", "sqlite3", "psql", "mysql", "redis-cli", "gpg", "openssl", "ip", "tc", "iptables", "mount", "journalctl", "systemctl", "tmux", "screen",
		// Interpreters and what builds.
		"python", "pypy", "ipython", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "wish", "R", "Rscript", "julia", "ghci", "runghc", "ocaml",
		"java", "javac", "jshell", "groovy", "kotlin", "kotlinc", "scala", "elixir", "iex", "erl", "escript", "dotnet", "pwsh", "powershell", "swift", "osascript", "guile", "racket", "sbcl", "clojure", "clj", "bb", "nix", "nix-shell",
		"make", "gmake", "bmake", "cmake", "ctest", "ninja", "meson", "bazel", "bazelisk", "buck", "scons", "ant", "mvn", "mvnw", "gradle", "gradlew", "sbt", "rake", "just", "task", "tox", "nox", "invoke",
		"npm", "npx", "pnpm", "pnpx", "yarn", "yarnpkg", "corepack", "lerna", "nx", "turbo", "vite", "webpack", "jest", "vitest", "mocha", "eslint", "prettier", "tsc", "ts-node", "tsx", "gulp", "grunt",
		"pip", "pipx", "uv", "uvx", "poetry", "pipenv", "conda", "pytest", "py.test", "mypy", "pylint", "ruff", "pre-commit",
		"cargo", "rustc", "rustup", "go", "gofmt", "gem", "bundle", "bundler", "rspec", "rails", "composer", "cpan", "cabal", "stack", "mix", "rebar3", "dune", "opam",
		"gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "gold", "lld", "as", "docker", "podman", "buildah", "nerdctl", "kubectl", "helm", "terraform", "tofu", "ansible", "ansible-playbook", "vagrant", "packer",
		"apt", "apt-get", "dpkg", "rpm", "yum", "dnf", "apk", "pacman", "brew", "snap", "flatpak", "gh", "glab", "aws", "gcloud", "az", "claude", "codex", "gemini", "opencode",
	}
}

// versioned is the end of a name that says a version, such as of python3.12.
var versioned = regexp.MustCompile(`[-0-9.]+$`)

// runner says whether a program is one whose name says nothing. One that lies in
// a folder and not on the path is a file of the workspace as likely as not.
func runner(program string) bool {
	name := strings.ToLower(path.Base(program))
	short := versioned.ReplaceAllString(name, "")
	all := runners()
	return slices.Contains(all, path.Base(program)) || slices.Contains(all, name) || short != "" && slices.Contains(all, short)
}

// runTools are tools of agents that run programs, or agents that do. They are
// compared without regard to case.
func runTools() []string {
	return []string{
		"bash", "shell", "execute", "exec", "exec_command", "run", "run_command", "run_shell_command", "run_terminal_cmd", "local_shell", "terminal", "powershell", "cmd", "repl", "python",
		"command", "command_execution", "unified_exec", "write_stdin", "task", "agent", "skill", "slashcommand", "workflow", "subagent", "monitor",
	}
}

// runTool says whether a tool is known to run programs.
func runTool(name string) bool { return slices.Contains(runTools(), strings.ToLower(name)) }
