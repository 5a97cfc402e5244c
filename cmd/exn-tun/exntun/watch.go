package exntun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"exnet/internal/cli"
	"exnet/node/control"

	"golang.org/x/term"

	tea "charm.land/bubbletea/v2"
)

// watchScreen shows the nodes on a terminal, redrawn in place, until q, Ctrl-C or the end of
// ctx.
func watchScreen(ctx context.Context, stdout io.Writer, l *looker) error {
	l.wait = 0 // the second picture has the rates
	m := &watchModel{ctx: ctx, l: l}
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(cli.Unwrap(stdout)), tea.WithoutSignalHandler()}
	if !isTerminal(os.Stdin) {
		options = append(options, tea.WithInput(nil))
	}
	_, err := tea.NewProgram(m, options...).Run()
	if m.err != nil {
		return m.err
	}
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// hasSize reports whether w is a terminal whose size is known, as drawing needs it.
func hasSize(w io.Writer) bool {
	f, ok := cli.Unwrap(w).(*os.File)
	if !ok {
		return false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return err == nil && width > 0 && height > 0
}

// watchModel is what is on the screen.
type watchModel struct {
	ctx           context.Context
	l             *looker
	text          string
	width, height int // of the terminal; 0: not known yet
	err           error
}

// picture is a look at the nodes.
type picture struct {
	text string
	err  error // ends the watching
}

// tick says that it is time for the next look.
type tick struct{}

// Init implements tea.Model.
func (m *watchModel) Init() tea.Cmd { return m.readNodes }

// readNodes is a tea.Cmd: it does not block the keys.
func (m *watchModel) readNodes() tea.Msg {
	var b bytes.Buffer
	err := m.l.printNodes(m.ctx, &b)
	if errors.Is(err, control.ErrNoNode) { // it may come back
		return picture{text: cli.Text(err) + "\n"}
	}
	return picture{b.String(), err}
}

// Update implements tea.Model.
func (m *watchModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "Q", "ctrl+c", "esc":
			return m, tea.Quit
		}
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case picture:
		if m.err = msg.err; m.err != nil {
			return m, tea.Quit
		}
		m.text = msg.text
		return m, tea.Tick(m.l.o.interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		return m, m.readNodes
	}
	return m, nil
}

// View implements tea.Model.
func (m *watchModel) View() tea.View {
	v := tea.NewView(m.fittingText())
	v.AltScreen = true
	return v
}

// fittingText returns the part of the text that fits the terminal.
func (m *watchModel) fittingText() string {
	lines := strings.Split(strings.TrimRight(m.text, "\n"), "\n")
	if room := m.height - 1; m.height > 1 && len(lines) > room {
		left := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("... %d more lines, which have no room here", left))
	}
	for i, line := range lines {
		lines[i] = shortenLine(line, m.width)
	}
	return strings.Join(append(lines, shortenLine("q ends", m.width)), "\n")
}

// shortenLine shortens a line to the width of the terminal; 0: it is not known.
func shortenLine(line string, width int) string {
	runes := []rune(line)
	if width < 1 || len(runes) <= width {
		return line
	}
	return string(runes[:width-1]) + ">"
}
