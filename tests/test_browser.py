"""The page of a run in a real browser: headless Chromium, driven by Selenium."""

from __future__ import annotations

import shutil

import pytest

from runner.report import page
from tests.test_page import sweep

selenium = pytest.importorskip("selenium")
pytest.importorskip("matplotlib")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip(
        "no Chromium with chromedriver here (apt-get install chromium-driver)", allow_module_level=True
    )


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = sweep(tmp_path_factory.mktemp("browser") / "run", device_name="NVIDIA H200")
    page.write(folder)
    return f"file://{folder}/report.html"


@pytest.fixture
def opened(browser, address):
    browser.get(address)
    yield browser
    assert [line for line in browser.get_log("browser") if line["level"] != "INFO"] == []


def column(browser, name):
    script = """
      const i = [...document.querySelectorAll("thead th")].findIndex((th) => th.textContent === arguments[0]);
      return [...document.querySelectorAll("tbody tr:not([hidden])")].map((tr) => tr.cells[i].textContent);"""
    return browser.execute_script(script, name)


def click(browser, name):
    browser.execute_script(
        'for (const b of document.querySelectorAll("thead button"))'
        "  if (b.textContent === arguments[0]) b.click();",
        name,
    )


def in_microseconds(text):
    value, unit = text.split()
    return float(value) * (1000 if unit == "ms" else 1)


def test_it_opens_without_errors_and_asks_for_nothing(opened):
    assert "gelu on NVIDIA H200" in opened.find_element("tag name", "h1").text
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    for svg in opened.find_elements("tag name", "svg"):
        assert svg.size["width"] > 600 and svg.size["height"] > 150


def test_the_table_fits_with_its_remarks(opened):
    assert (
        opened.execute_script(
            "const box = document.querySelector('#rows .wide'); return box.scrollWidth - box.clientWidth"
        )
        <= 0
    )


def test_it_sorts_by_number_both_ways_and_what_has_no_time_stands_last(opened):
    click(opened, "mean")
    up = column(opened, "mean")
    click(opened, "mean")
    down = column(opened, "mean")
    for texts, backwards in ((up, False), (down, True)):
        timed = [in_microseconds(text) for text in texts if text]
        assert len(timed) == 18 and timed == sorted(timed, reverse=backwards)
        assert texts[18:] == [""] * 6
    assert opened.find_element("css selector", "th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_it_sorts_by_word(opened):
    click(opened, "variant")
    assert column(opened, "variant") == sorted(column(opened, "variant"))


def test_it_filters_by_words_and_without_words(opened):
    box = opened.find_element("id", "filter")
    box.send_keys("bfloat16 -naive")
    assert set(column(opened, "variant")) == {"builtin", "tuned", "cpp"}
    assert opened.find_element("id", "count").text == "9 of 24 rows"
    faint = len(opened.find_elements("css selector", "#roofline .mark.faint"))
    assert faint == 12  # of 18: the marks of the rows that are left out
    box.clear()
    box.send_keys("nothing like it")
    assert column(opened, "variant") == []


@pytest.mark.parametrize("picture", ["roofline", "sizes", "speedup", "samples"])
def test_a_mark_under_the_pointer_shows_its_row(opened, picture):
    from selenium.webdriver import ActionChains

    tip = opened.find_element("id", "tip")
    assert not tip.is_displayed()
    mark = opened.find_elements("css selector", f"#{picture} .mark")[-1]
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(opened).move_to_element(mark).perform()
    row = opened.find_element("id", mark.get_attribute("data-row"))
    cells = [cell.get_attribute("textContent") for cell in row.find_elements("tag name", "td")]
    assert tip.is_displayed() and tip.text.splitlines()[:2] == [cells[1], cells[0]]
    assert cells[3] in tip.text and "chosen" in row.get_attribute("class")


def test_light_and_dark_follow_the_reader(browser, address):
    grounds = []
    for theme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        browser.get(address)
        ink = "getComputedStyle(document.querySelector('#sizes svg text')).fill"
        ground = "getComputedStyle(document.body).backgroundColor"
        grounds.append(browser.execute_script(f"return [{ground}, {ink}]"))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    (light, dark_ink), (dark, light_ink) = grounds
    assert light == "rgb(255, 255, 255)" and dark == "rgb(21, 24, 29)" and dark_ink != light_ink
