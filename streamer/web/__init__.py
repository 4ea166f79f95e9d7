"""The live page: what the daemon does now, in a browser, without a build step.

model      what is known of the run; messages and replies in, rows for the page out
history    a curve of bounded length over a run of any length
wall_clock the time of day, which somebody may set
rows       the rows of targets, and which of them the page shows
following  the feed and the control socket, asked again and again
broadcast  server-sent events for all open pages
guard      who may see the page, and what its browser may load
app        the routes
static/    the page itself: HTML, CSS, JavaScript, and uPlot with its licence
"""
