package api

import "time"

// Key is one key of the installation, without any of it.
type Key struct {
	Name      string     `json:"name"`
	ID        string     `json:"id,omitempty" doc:"Names the key that is in use; empty: it has no name, or cannot be told from here."`
	For       string     `json:"for" doc:"What it is used for."`
	Where     string     `json:"where" doc:"The file, below the data folder, or who keeps it."`
	MadeAt    *time.Time `json:"madeAt,omitempty"`
	RotatedAt *time.Time `json:"rotatedAt,omitempty" doc:"Absent: never, as far as this installation knows."`
	RotatedBy string     `json:"rotatedBy,omitempty"`
	Former    int        `json:"former,omitempty" doc:"Keys before it that are kept for what was made under them."`
	Rotation  string     `json:"rotation" enum:"running,stopped,none" doc:"running: while the platform runs; stopped: while it does not; none: not at all."`
	How       string     `json:"how,omitempty" doc:"What to do where it is not rotated while the platform runs."`
	Problem   string     `json:"problem,omitempty" doc:"Why it cannot be used."`
}

// KeyList lists the keys.
type KeyList struct {
	Keys []Key `json:"keys" nullable:"false"`
}

// KeyRotation asks for another key.
type KeyRotation struct {
	User string `json:"user,omitempty" maxLength:"128" doc:"Whose tokens; empty: everyone's. For tokens only."`
	Now  bool   `json:"now,omitempty" doc:"For identity only: the new key signs at once and every other one is forgotten."`
}

// KeyRotated tells of another key.
type KeyRotated struct {
	Name   string     `json:"name"`
	ID     string     `json:"id,omitempty" doc:"Names the new key."`
	Public string     `json:"public,omitempty" doc:"Its public half, to be kept elsewhere: what is signed from here on is verified with it."`
	Sealed int        `json:"sealed,omitempty" doc:"Values that were sealed anew."`
	Tokens []NewToken `json:"tokens,omitempty" doc:"In the place of those that work no more."`
	Note   string     `json:"note,omitempty" doc:"What else there is to do."`
}

// NewToken is a token in the place of another.
type NewToken struct {
	Token
	Instead string `json:"instead" doc:"Id of the token that works no more."`
	Yours   bool   `json:"yours,omitempty" doc:"In the place of the one that asked."`
	File    bool   `json:"file,omitempty" doc:"Its secret is in a file of the control plane's machine, where cofferdam up hands it on."`
}
