package api

import "time"

// FileDenial is one write, or reading of something hidden, that a task's file
// rules refused, as the sandbox's kernel saw it.
type FileDenial struct {
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	Sandbox   string    `json:"sandbox"`
	Operation string    `json:"operation" doc:"open, rename, unlink, mkdir, …; more: refusals that the account had no room for; unreadable: lines of it that can't be read."`
	Path      string    `json:"path" doc:"As the program gave it, made absolute; what can't be printed is escaped."`
	Error     string    `json:"error" doc:"What the program was told: EROFS, EACCES, EBUSY, EPERM or EXDEV."`
	Program   string    `json:"program,omitempty"`
	PID       int       `json:"pid,omitempty" doc:"Inside the sandbox."`
	Count     int64     `json:"count,omitempty" doc:"This record stands for so many alike after the first; absent: for one."`
}

// FileDenialList is what was refused on protected files in a task's sandboxes.
type FileDenialList struct {
	Denials []FileDenial `json:"denials" nullable:"false"`
}
