// Package tools says which uses of an agent's tools are allowed, asked of a
// person or refused. It is pure.
//
// Words. A kind is what a tool does, whatever its agent calls it. A rule about a
// name is about a kind, or about one tool by the name its agent gives it. A
// command is a list of arguments; one that is allowed is compared argument by
// argument with what would run. A form stands for one argument: {word}, {path} or
// {number}. A runner is a program whose arguments can have it run another one:
// its name says nothing about what it does.
//
// No rule allows by its name what runs programs: neither the kind shell, nor a
// tool that is known to run them, nor a runner. Layers narrow: each that says
// something of tools gives a verdict, and the strictest counts.
//
// Not promised: that a program does what its arguments look like, or that a name
// is the program one thinks of. The sandbox bounds what runs; this says what is
// started without a person.
package tools
