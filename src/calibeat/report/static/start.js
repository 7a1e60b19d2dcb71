// Puts the page together.
const payload = JSON.parse(document.getElementById("payload").textContent);
const styles = methodStyles(payload);

root.classList.add("scripted");
startTheme();
startPrinting();
startLeaderboard(payload, styles);
drawDecisions(payload, styles);
drawWindows(payload, styles);
drawDrift(payload);
drawReliability(payload, styles);
drawLearnt(payload);
drawClasses(payload, styles);
drawEvidence(payload, styles);
drawPaging(payload, styles);
startKeys(payload);
startSegments(payload);
drawDelays(payload);
drawHistory(payload);
startScrollers();
startCopying();
root.dataset.ready = "";
