package main

import (
	"fmt"
	"math"
	"strings"
)

// plot draws the ratios as horizontal ranges on a logarithmic scale, SVG: min to max as a line, the median as a dot.
func plot(rows []*row) []byte {
	var shown []*row
	for _, w := range rows {
		if w.Ratio != nil && w.Ratio.Min > 0 {
			shown = append(shown, w)
		}
	}
	const left, right, line, width = 330, 40, 20, 860
	low, high := 0.02, 10.0
	x := func(v float64) float64 {
		v = math.Min(math.Max(v, low), high)
		return left + (width-left-right)*(math.Log(v)-math.Log(low))/(math.Log(high)-math.Log(low))
	}
	height := 60 + line*len(shown)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="10" y="20" font-size="14">varve / peer: min, median, max of the pairs (1 = equal)</text>`+"\n")
	for _, v := range []float64{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10} {
		colour := "#ddd"
		if v == 1 {
			colour = "#888"
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="45" x2="%.1f" y2="%d" stroke="%s"/><text x="%.1f" y="40" text-anchor="middle" fill="#555">%g</text>`+"\n", x(v), x(v), height-5, colour, x(v), v)
	}
	for i, w := range shown {
		y := 60 + line*i
		colour := "#36c"
		if w.Met != nil && !*w.Met {
			colour = "#c33"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s %s</text>`, left-10, y+4, w.Case, w.Metric)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="3"/>`, x(w.Ratio.Min), y, x(w.Ratio.Max), y, colour)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="5" fill="%s"/>`+"\n", x(w.Ratio.Median), y, colour)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
