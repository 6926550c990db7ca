package link

import "github.com/cofferdam/cofferdam/internal/sandbox"

// StatusList answers a request for how commands stand this very moment.
type StatusList struct {
	Commands []sandbox.Status `json:"commands"`
}

// Size asks for a terminal's size.
type Size struct {
	Size sandbox.Size `json:"size"`
}
