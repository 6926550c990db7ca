// Package credential is the vault and what is lent from it. Only cofferdamd has
// it.
//
// Words. A credential has a value, which is the secret, and a binding: the
// header that carries it and the hosts, ports, methods and paths it may be sent
// to. The vault keeps values sealed: AES-256-GCM under a key derived from
// DATA/cofferdamd/keys/vault.key, with the credential's identity, owner and
// binding as associated data, so that a row whose binding was altered, or whose
// value was taken from another row, does not open. A lease lends one credential
// to one stage of one sandbox: it begins when the stage begins and ends with
// it, with its task, or when the credential is revoked. A placeholder stands
// for the value inside the sandbox; it is random, made once a lease, shaped like
// a key of its kind, and worth nothing outside of its sandbox.
//
// A lease's id follows from task, attempt, stage, sandbox and credential. A
// stage that is run again after a crash has the same lease and the same
// placeholder; a lease that had ended with its stage is made again and counted.
// One that ended for another reason stays ended.
//
// Of some kinds a value is minted for each lease: made by a provider from what
// the vault keeps or from who the run is, kept sealed in a row of its own, renewed
// before its end, and revoked at the provider when its lease ends. The row is
// there before the provider is asked and goes when the value is over, so that a
// process that was killed neither mints twice nor forgets to revoke.
//
// A value leaves in one way: Leases.Value, for a lease that is active in that
// very sandbox. Who asks for it keeps it for Life at most.
//
// Not promised: that a provider ends what it made before its time; that what it
// made while we were killed is known to us; that a value which was lent is
// forgotten sooner than Life where the machine that has it can't be reached.
package credential
