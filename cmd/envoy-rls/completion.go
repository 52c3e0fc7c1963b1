package main

import (
	_ "embed"
	"encoding"
	"errors"
	"reflect"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"
)

// completionCommand prints what makes a shell complete command lines of this program.
type completionCommand struct {
	Shell shell `arg:"" help:"bash, zsh or fish."`
}

type shell string

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *shell) UnmarshalText(text []byte) error { return oneOf(s, text, "bash", "zsh", "fish") }

// Help is the end of completion --help.
func (completionCommand) Help() string {
	return `Examples:
  source <(envoy-rls completion bash)                    in ~/.bashrc
  source <(envoy-rls completion zsh)                     in ~/.zshrc, after compinit
  envoy-rls completion fish > ~/.config/fish/completions/envoy-rls.fish`
}

var (
	//go:embed completion.bash.tmpl
	bashCompletion string
	//go:embed completion.zsh.tmpl
	zshCompletion string
	//go:embed completion.fish.tmpl
	fishCompletion string
)

// Run implements the command.
func (c *completionCommand) Run(s streams, parsed *kong.Context) error {
	text := map[shell]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	t, err := template.New(string(c.Shell)).Funcs(template.FuncMap{"join": strings.Join, "quote": quoted, "fishquote": fishQuoted, "item": zshItem}).
		Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(s.out, completable(parsed.Model.Node, ""))
}

// completed is a command, or the program itself, as the scripts see it.
type completed struct {
	Path     string // the commands before it and it, each behind a space; empty: the program
	Commands []word // below it
	Flags    []word
	Argument word // the zero value: it takes none
}

// word is what can be written, and what may follow it.
type word struct {
	Text, Help string
	Values     []string // all that may follow
	Files      bool     // names of files follow
	Anything   bool     // something follows that nobody can guess
}

// completable are a node and all commands below it.
func completable(n *kong.Node, path string) []completed {
	own := completed{Path: path}
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			own.Flags = append(own.Flags, wordOf("--"+f.Name, f.Value, f.PlaceHolder))
		}
	}
	for _, p := range n.Positional {
		own.Argument = wordOf(p.Name, p, p.Name)
	}
	list := []completed{own}
	for _, child := range n.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			list[0].Commands = append(list[0].Commands, word{Text: child.Name, Help: child.Help})
			list = append(list, completable(child, path+" "+child.Name)...)
		}
	}
	return list
}

func wordOf(text string, v *kong.Value, placeholder string) word {
	w := word{Text: text, Help: v.Help}
	if v.IsBool() {
		return w
	}
	switch strings.ToLower(placeholder) {
	case "file", "dir", "path":
		w.Files = true
	default:
		w.Values = allowedValues(v.Target.Type())
		w.Anything = w.Values == nil
	}
	return w
}

// allowedValues are those of a type that has few, which its error says; nil if it has many.
func allowedValues(t reflect.Type) []string {
	u, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	if !ok {
		return nil
	}
	var want wantWord
	if errors.As(u.UnmarshalText([]byte("\x00")), &want) {
		return want
	}
	return nil
}

// quoted is a text that bash and zsh take as it is.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

// zshItem is a word with its help for zsh's _describe, which reads them in two, at a colon.
func zshItem(w word) string {
	return quoted(strings.ReplaceAll(w.Text, ":", `\:`) + ":" + w.Help)
}
