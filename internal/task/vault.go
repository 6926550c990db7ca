package task

// EndOfAll is what the end of everything that is lent has ended.
type EndOfAll struct {
	Credentials int          // that were revoked by it
	Leases      int          // that were ended by it
	All         []Credential // every credential, all of them revoked
	Cut         []Lent       // leases whose connections may not be cut yet
}

// SealedRow is a value of the vault as it is sealed, and the credential that it
// belongs to.
type SealedRow struct {
	ID         string
	Credential Credential
	Sealed     []byte
}

// Resealed is a value that was sealed under another key than before.
type Resealed struct {
	ID       string
	Minted   bool // a value that was minted, not one of the vault
	Old, New []byte
}
