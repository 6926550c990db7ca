package link

import "github.com/cofferdam/cofferdam/internal/task"

// MaxDenials bounds the refusals in one answer.
const MaxDenials = 500

// DenialList answers a request for what was refused on protected files.
type DenialList struct {
	Denials []task.FileDenial `json:"denials"`
}
